"""Saves checkpoints of a run, and restores the run from them."""
