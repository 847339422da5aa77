"""Histories are told in tables and lived through in tests: a slip in the engine fails rows, and hides no file."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType

import ddpjob_operator.engine
import pytest

ENGINE = str(Path(ddpjob_operator.engine.__file__).parent)
TESTS = Path(__file__).parents[1]
TELLERS = [
    path.relative_to(TESTS)
    for room in ("unit", "model")
    for path in sorted((TESTS / room).rglob("test_*.py"))
    if "builders import" in path.read_text()
]


@pytest.mark.parametrize("path", TELLERS, ids=str)
def test_the_engine_decides_nothing_while_tests_are_collected(path: Path) -> None:
    name = ".".join(("tests", *path.with_suffix("").parts))
    importlib.import_module(name)
    with calls_into(ENGINE, of=str(TESTS / path)) as calls:
        import_again(name, TESTS / path)
    assert not calls, f"{path} runs the engine when it is imported: let a test do it, or a function with @told"


def import_again(name: str, path: Path) -> None:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))


@contextmanager
def calls_into(room: str, *, of: str) -> Iterator[set[str]]:
    """Which lines of a file lead to which functions of a room."""
    calls = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(room):
            line = next((one.f_lineno for one in callers(frame) if one.f_code.co_filename == of), None)
            calls.add(f"line {line}: {frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def callers(frame: FrameType) -> Iterator[FrameType]:
    caller = frame.f_back
    while caller is not None:
        yield caller
        caller = caller.f_back
