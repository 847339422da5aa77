"""Which variables a training script sets before PyTorch reads them, by the script's text and while it runs."""
