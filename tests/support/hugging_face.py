"""Hugging Face's transformers, which are not part of the tests' environment."""

import subprocess
import sys
from pathlib import Path

from tests.plant.build import uv

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
NEWEST, OLDEST = "transformers.txt", "transformers-4.41.txt"


def install_transformers(directory: Path, lock: str = NEWEST) -> None:
    """Installs transformers into a directory outside the environment, for PYTHONPATH."""
    words = ["pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "--requirement"]
    subprocess.run([uv() or "uv", *words, str(REQUIREMENTS / lock), "--target", str(directory)], check=True)
