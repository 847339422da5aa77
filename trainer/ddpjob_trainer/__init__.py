"""Trains a PyTorch model in one process or many, in the pods of a DDPJob or elsewhere.

Trainer and operator share no code, only a contract: environment variables, exit codes and failure reports.
"""
