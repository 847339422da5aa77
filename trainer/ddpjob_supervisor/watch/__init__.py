"""Watches ranks: reads their reports, and finds out what a rank without reports is doing."""
