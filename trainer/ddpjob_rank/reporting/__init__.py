"""What a program tells its supervisor: by calls of its own, or by what is seen of its steps and bars."""
