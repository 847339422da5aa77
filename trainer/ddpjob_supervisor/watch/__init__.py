"""Watches ranks: reads their reports, and finds out what a rank that does not report is doing."""
