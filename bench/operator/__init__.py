"""How fast the operator is and what it costs, beside other controllers on the same plant: `make bench-operator`."""
