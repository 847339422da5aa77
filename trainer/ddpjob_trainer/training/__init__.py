"""Training: the loop and its parts, one reason each. Imports torch."""
