"""Ranks as processes: two ways to start them, and what they leave behind."""
