"""A kind cluster for machines without a docker engine or an image registry: see the page of tests/plant."""
