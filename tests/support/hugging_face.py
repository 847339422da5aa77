"""Hugging Face's transformers, which the environment does without."""

import subprocess
import sys
from pathlib import Path

from tests.plant.build import uv

LOCK = Path(__file__).parents[2] / "requirements" / "transformers.txt"


def install_transformers(directory: Path) -> None:
    """Installs it beside the environment, for PYTHONPATH."""
    words = ["pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "--requirement", str(LOCK)]
    subprocess.run([uv() or "uv", *words, "--target", str(directory)], check=True)
