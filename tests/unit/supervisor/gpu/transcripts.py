"""Lines that processes with GPUs have printed, from public reports: each file's first line says which one.

None was made here, where there is no GPU.
"""

from pathlib import Path

DIRECTORY = Path(__file__).parent / "transcripts"


def transcript(name: str) -> list[str]:
    """What was printed, without its source."""
    return (DIRECTORY / f"{name}.log").read_text(encoding="utf-8").splitlines()[1:]
