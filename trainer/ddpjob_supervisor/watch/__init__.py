"""Watching ranks: what they report, and what happens to those that report nothing."""
