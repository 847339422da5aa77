"""What is generated from the code is as the code is now."""

import subprocess
import sys
from pathlib import Path

GENERATE = Path(__file__).resolve().parents[2] / "docs" / "generate.py"


def test_everything_generated_is_current() -> None:
    done = subprocess.run([sys.executable, GENERATE, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "bring it up to date with: make generate"
