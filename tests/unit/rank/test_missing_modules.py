"""What is said of modules that a script imports and that are missing: all at once, as far as that is certain."""

import sys
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.failure import traps
from ddpjob_rank.running.program import Program


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script beside a module."""
    (tmp_path / "beside.py").touch()
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("import lacking_a", {"lacking_a": 1}),
        ("'''Trains.'''\nimport os, sys\nfrom lacking_a.b import c", {"lacking_a": 3}),
        ("import os, lacking_a.b as c, lacking_b", {"lacking_a": 1, "lacking_b": 1}),
        ("import lacking_a\nimport os\nimport pathlib, lacking_b", {"lacking_a": 1, "lacking_b": 3}),
        ("import lacking_a\nimport beside\nimport lacking_b", {"lacking_a": 1}),
        ("import lacking_a\nx = 1\nimport lacking_b", {"lacking_a": 1}),
        ("x = 1\nimport lacking_a\nimport lacking_a.b", {"lacking_a": 2}),
        ("def f():\n    import lacking_a\nf()\nimport lacking_b", {"lacking_a": 2}),
        ("import sys\nsys.path.append('lib')\nimport lacking_a\nfrom . import b", {"lacking_a": 3}),
    ],
    ids=[
        "one",
        "a part of one, after Python's own",
        "two in one line",
        "two, with Python's own between them",
        "what a module of its own may let be found is not",
        "what comes after something else is not looked at",
        "twice",
        "in a function",
        "after anything else",
    ],
)
def test_all_that_is_missing_is_named_with_how_to_have_it(script: Path, text: str, missing: dict[str, int]) -> None:
    script.write_text(text)
    with pytest.raises(ModuleNotFoundError) as error:
        Program(module=False, name=str(script)).run()
    known = traps.known_mistake(error.value)
    assert isinstance(known, ConfigError)
    where = " or ".join(f"'{name}', in {script}:{line}" for name, line in missing.items())
    assert str(known).startswith(f"No module named {where}: if ")
    assert str(known).endswith(f" -m pip install {' '.join(missing)}")
