"""The status page: what a supervisor knows of its gang, for the operator, for Prometheus and for people with curl."""
