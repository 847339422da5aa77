"""Generates sections of the reference pages from the code, as Markdown."""
