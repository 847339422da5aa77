"""`python -m ddpjob_trainer.supervisor`."""

from .main import main

main()
