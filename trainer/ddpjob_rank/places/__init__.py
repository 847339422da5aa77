"""Places that neither a pod nor torchrun describes: what flags, Slurm or MPI say, in the contract's words."""
