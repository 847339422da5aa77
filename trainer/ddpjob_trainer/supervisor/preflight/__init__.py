"""Testing the machines before the program runs on them: what would fail after an hour is better known at once."""
