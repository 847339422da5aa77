"""`python -m ddpjob_supervisor`."""

from .main import main

main()
