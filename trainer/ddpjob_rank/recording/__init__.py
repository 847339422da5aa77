"""The metrics file, to which a run appends and which other programs read."""
