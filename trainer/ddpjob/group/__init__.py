"""Communication between the processes of a training run, other than gradients."""
