"""Checkpoints of any training run: how they are encoded, written while it goes on, found and read back."""
