"""`Training` and `Checkpoints`: what makes a training program resume."""
