"""What the operating system reports about this machine, and how a rank uses it: cores, memory, network, storage."""
