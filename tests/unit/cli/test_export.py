"""`ddpjob export` runs the library's program, which tests/training has write weights."""

import importlib.util
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.export import export

WORDS: Any = SimpleNamespace(directory="checkpoints", output="weights.pt", thing="model")


def test_the_program_gets_what_is_given_and_its_exit_code_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(
        subprocess, "run", lambda words, check: called.append(words) or SimpleNamespace(returncode=3 + check)
    )
    assert export(WORDS) == 3
    options = ["checkpoints", "--output", "weights.pt", "--thing", "model"]
    assert called == [[sys.executable, "-P", "-m", "ddpjob.checkpoint.weights", *options]]


def test_without_torch_it_says_where_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInputError, match=f"{sys.executable} lacks torch"):
        export(WORDS)
