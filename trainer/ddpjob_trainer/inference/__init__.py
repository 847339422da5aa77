"""Uses a trained model, in one process and without a process group."""
