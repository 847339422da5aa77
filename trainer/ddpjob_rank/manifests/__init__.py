"""What a checkpoint says about itself, for whoever resumes from it, and for whoever only wants to know its size."""
