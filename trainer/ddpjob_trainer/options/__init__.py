"""What can be asked of a run, a module for each theme: its values, its flags, and how they are read."""
