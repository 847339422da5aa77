"""What the processes of a training tell each other, beside gradients."""
