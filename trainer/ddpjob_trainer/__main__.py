"""`python -m ddpjob_trainer`, which torchrun's `-m` uses as well."""

from .main import main

main()
