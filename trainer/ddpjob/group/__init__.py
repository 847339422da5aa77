"""Communication between the processes of a training, other than gradients."""
