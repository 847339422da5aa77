"""A kind cluster where there is neither a docker engine nor an image registry: see the page of tests/plant."""
