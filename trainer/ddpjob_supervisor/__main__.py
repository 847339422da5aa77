"""`python -m ddpjob_supervisor`."""

import sys
from pathlib import Path

# Python searches the working directory first: a queue.py there would hide the standard library's.
if not sys.flags.safe_path and sys.path[0] != str(Path(__file__).parents[1]):
    del sys.path[0]

from .main import main

main()
