"""Trains a PyTorch model on one process or many, as DDPJob's pods find themselves.

Imports nothing of the operator: the two share only the contract of environment, exit codes and failure report.
"""
