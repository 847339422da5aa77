"""DDPJob: PyTorch DistributedDataParallel training that starts, survives and ends as a whole."""
