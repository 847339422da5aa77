"""Ranks as processes: the two ways to start them, and the processes that they leave behind."""
