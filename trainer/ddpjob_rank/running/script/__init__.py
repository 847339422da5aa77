"""Finds the variables that a training script sets before PyTorch reads them, from its text and while it runs."""
