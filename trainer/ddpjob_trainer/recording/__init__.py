"""How training went, kept for later as JSON lines by rank 0, which gathers and reads nothing only for them."""
