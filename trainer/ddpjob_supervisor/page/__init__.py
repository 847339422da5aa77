"""The status page: a supervisor's view of its gang, for the operator, for Prometheus and for people with curl."""
