"""What the operator shows of itself: health, metrics, its log. Imports nothing else from `cluster`."""
