"""Runs for `python -m ddpjob_trainer` and for `torchrun -m ddpjob_trainer`."""

from .main import main

main()
