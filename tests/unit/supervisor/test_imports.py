"""What is said of a script's imports before a rank runs it: what is certain, and nothing else."""

import sys
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.node.imports import check_imports


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script beside a module, a namespace package and a module that has a name of Python's own."""
    (tmp_path / "beside.py").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "this.py").touch()
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("import lacking_a", {"lacking_a": 1}),
        ("'''Trains.'''\nimport os, sys\nfrom lacking_a.b import c", {"lacking_a": 3}),
        ("from __future__ import annotations\nimport os, lacking_a.b as c\nimport yaml", {"lacking_a": 2}),
        ("import tqdm\nimport lacking_a\nimport os, lacking_b", {"lacking_a": 2, "lacking_b": 3}),
        ("import lacking_a\nimport beside\nimport lacking_b", {"lacking_a": 1}),
        ("import lacking_a\nx = 1\nimport lacking_b", {"lacking_a": 1}),
        ("import lacking_a\nimport lacking_a.b", {"lacking_a": 1}),
    ],
    ids=[
        "one",
        "a part of one, after Python's own",
        "beside another",
        "two, after a package that is known",
        "what a module of its own may let be found is not",
        "what comes after something else is not looked at",
        "twice",
    ],
)
def test_all_that_is_missing_is_named_with_how_to_have_it(script: Path, text: str, missing: dict[str, int]) -> None:
    script.write_text(text)
    where = " or ".join(f"'{name}', in {script}:{line}" for name, line in missing.items())
    with pytest.raises(ConfigError) as error:
        check_imports(Program(module=False, name=str(script)))
    assert str(error.value).startswith(f"No module named {where}: if ")
    assert str(error.value).endswith(f" -m pip install {' '.join(missing)}")


@pytest.mark.parametrize(
    "text",
    [
        "import os\nimport beside",
        "import folder.part",
        "import sys\nsys.path.append('lib')\nimport lacking_a",
        "import rich\nimport lacking_a",
        "import beside\nimport lacking_a",
        "from torch.utils.cpp_extension import load\nimport lacking_a",
        "x = " + "-" * 20_000 + "1\nimport lacking_a",
        "import this\nimport lacking_a",
        "try:\n    import lacking_a\nexcept ImportError:\n    lacking_a = None",
        "if False:\n    import lacking_a",
        "def f():\n    import lacking_a",
        "from . import lacking_a",
        "from .lacking_a import b",
        "import xml.lacking_a",
        "import",
        "\0",
    ],
    ids=[
        "beside it",
        "a folder beside it",
        "the path changed",
        "after a package that may change it",
        "after a module of its own that may",
        "after a part of a package that does",
        "too deep for a parser",
        "after one that has a name of Python's own",
        "tried",
        "under a condition",
        "in a function",
        "of its package",
        "a part of its package",
        "a part of what is there",
        "no Python",
        "no text",
    ],
)
def test_nothing_is_said_where_a_rank_may_find_it_all_the_same(script: Path, text: str) -> None:
    script.write_text(text)
    path = sys.path[:]
    check_imports(Program(module=False, name=str(script)))
    assert sys.path == path


def test_a_module_is_left_to_the_rank() -> None:
    check_imports(Program(module=True, name="lacking_a"))
