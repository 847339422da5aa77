"""Translates flags, and the variables of Slurm and MPI, into the contract's variables if a process lacks these."""
