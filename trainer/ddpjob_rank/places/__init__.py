"""Translates flags, and the variables of Slurm and MPI, into RANK and related variables if a process lacks these."""
