"""Translates flags and the variables of Slurm and MPI into those of the contract, for processes without them."""
