"""Prepares the model for training: its device, DistributedDataParallel, precision, and averaged weights."""
