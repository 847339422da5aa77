"""What a rank and its supervisor both need: places, reports, failures, stopping. Imports no torch."""
