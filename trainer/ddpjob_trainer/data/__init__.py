"""Fetches samples, puts them in order, and divides them into batches."""
