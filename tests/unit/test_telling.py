"""Histories are told in tables and lived through in tests: a slip in the engine fails rows, and hides no file."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType, ModuleType

import ddpjob_operator.cluster
import ddpjob_operator.engine
import ddpjob_supervisor.gang
import pytest

TESTS = Path(__file__).parents[1]
OF_THE_ENGINE = [
    str(path.relative_to(TESTS))
    for room in ("unit", "model")
    for path in sorted((TESTS / room).rglob("test_*.py"))
    if "builders import" in path.read_text()
]
TELLERS = {
    **dict.fromkeys(OF_THE_ENGINE, ddpjob_operator.engine),
    "unit/cluster/test_line.py": ddpjob_operator.cluster,
    "unit/supervisor/gang/test_coordinator.py": ddpjob_supervisor.gang,
}


@pytest.mark.parametrize(("path", "room"), TELLERS.items(), ids=TELLERS)
def test_nothing_is_decided_while_tests_are_collected(path: str, room: ModuleType) -> None:
    file, name = TESTS / path, f"tests.{path.removesuffix('.py').replace('/', '.')}"
    importlib.import_module(name)
    with calls_into(room, of=file) as calls:
        import_again(name, file)
    assert not calls, f"{path} calls what it tests when it is imported: leave that to a test, or to what is @told"


def import_again(name: str, path: Path) -> None:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))


@contextmanager
def calls_into(room: ModuleType, *, of: Path) -> Iterator[set[str]]:
    """Which lines of a file lead to which functions of a room."""
    calls, within = set[str](), f"{room.__path__[0]}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(within):
            line = next((one.f_lineno for one in callers(frame) if one.f_code.co_filename == str(of)), None)
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
