"""Tests the machines before the program runs on them, so that what would fail after an hour fails immediately."""
