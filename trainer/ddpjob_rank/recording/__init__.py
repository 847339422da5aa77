"""The file of metrics that a run appends to, and others read."""
