"""Trains a PyTorch model with one process or many, in the places that DDPJob's pods get.

Imports nothing of the operator: the two share only the contract of environment, exit codes and failure report.
"""
