"""Built-in workloads: a model each, and the data of handwritten digits."""
