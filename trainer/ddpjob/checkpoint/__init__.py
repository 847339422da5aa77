"""Checkpoints of any training: how they are encoded, written beside training, found and read back."""
