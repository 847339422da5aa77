"""Ranks as processes: what is run, and two ways to start it."""
