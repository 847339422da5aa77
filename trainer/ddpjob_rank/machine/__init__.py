"""The operating system's data about this machine, and how a rank uses it: cores, memory, network, storage."""
