"""Golden files: what is promised to others, spelled out.

`UPDATE_GOLDEN=1 pytest tests/unit/golden` writes them anew.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[str, str], None]


@pytest.fixture
def golden() -> Golden:
    """Compares a text with the golden file of that name, or writes it where UPDATE_GOLDEN is set."""

    def compare(name: str, text: str) -> None:
        file = Path(__file__).parent / name
        if os.environ.get("UPDATE_GOLDEN"):
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file} is missing: write it with UPDATE_GOLDEN=1"
        assert text == file.read_text(encoding="utf-8"), f"{name} differs; if that is wanted: UPDATE_GOLDEN=1"

    return compare
