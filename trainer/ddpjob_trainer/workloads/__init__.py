"""Workloads that come along: a model each, and the data of handwritten digits."""
