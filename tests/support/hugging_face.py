"""Hugging Face's transformers, which the environment does without."""

import shutil
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parents[2] / "requirements" / "transformers.txt"


def install_transformers(directory: Path) -> None:
    """Installs it beside the environment, for PYTHONPATH."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    words = ["pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "--requirement", str(LOCK)]
    subprocess.run([uv, *words, "--target", str(directory)], check=True)
