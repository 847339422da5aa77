"""What is saved of a run, how, when, and how it comes back."""
