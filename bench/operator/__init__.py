"""Measures the operator's speed and cost beside other controllers on the same plant: `make bench-operator`."""
