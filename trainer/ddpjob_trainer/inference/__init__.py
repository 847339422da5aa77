"""A trained model in use: in one process, without a process group."""
