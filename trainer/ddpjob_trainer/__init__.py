"""Trains a PyTorch model in one process or many, in the pods of a DDPJob or elsewhere.

Imports nothing of the operator: the two share only the contract of environment, exit codes and failure report.
"""
