"""What the operating system says of this machine, and how a rank uses it: cores, memory, network, storage."""
