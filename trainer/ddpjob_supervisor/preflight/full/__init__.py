"""The full preflight, run as the ranks are: known sums over the gang, then over pairs, to find who is at fault."""
