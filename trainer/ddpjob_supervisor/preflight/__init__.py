"""Tests the machines before the program runs on them: what would fail after an hour should fail immediately."""
