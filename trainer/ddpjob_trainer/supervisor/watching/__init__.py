"""Watching ranks: what they tell of themselves, and what becomes of those that tell nothing."""
