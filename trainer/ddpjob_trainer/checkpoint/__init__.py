"""Checkpoints: what is saved of a run, when and how, and how it is restored."""
