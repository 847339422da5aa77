"""Importing much at once."""

import gc
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from ddpjob_rank.importing import once_imported, uncollected


def test_all_who_wait_for_a_module_are_called_once_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, seen = "imported_by_and_by", list[tuple[int, ModuleType]]()
    (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for number in range(2):
        once_imported(name, lambda module, number=number: seen.append((number, module)))
    assert not seen
    module = importlib.import_module(name)
    once_imported(name, lambda module: seen.append((2, module)))
    monkeypatch.delitem(sys.modules, name)
    assert seen == [(number, module) for number in range(3)]


def test_what_is_imported_is_not_looked_at_by_the_garbage_collector_then_or_later() -> None:
    before = gc.get_freeze_count()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_what_is_imported_is_not_collected_at_the_end_either_which_would_take_a_tenth_of_the_time() -> None:
    seen: list[str] = []

    def see(phase: str, _: object) -> None:
        seen.append(phase)

    gc.callbacks.append(see)
    try:
        with uncollected():
            pass
        assert not seen
    finally:
        gc.callbacks.remove(see)
        gc.unfreeze()


def test_an_import_that_fails_leaves_the_garbage_collector_at_work() -> None:
    try:
        with pytest.raises(ImportError), uncollected():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
