"""The model around a step: layout on devices, DistributedDataParallel, precision, averages."""
