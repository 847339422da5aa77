"""A file that torch.save could not write is told with its name, and a full disk as a full disk."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_rank.errors import StorageError, StorageFullError, TrainerError
from ddpjob_rank.failure.not_saved import not_saved

UNEXPECTED = "[enforce fail at inline_container.cc:671] . unexpected pos 704 vs 598"
FAILED = (
    "[enforce fail at inline_container.cc:857] . PytorchStreamWriter failed writing file data/37: file write failed"
)
SAVE = """
def save(obj, f):
    raise RuntimeError(obj)
"""


def made_of(said: str, file: object) -> TrainerError | None:
    """What is made of the error that torch.save raises for a file."""
    torch: dict[str, Any] = {}
    exec(compile(SAVE, "/lib/python3.11/site-packages/torch/serialization.py", "exec"), torch)
    with pytest.raises(RuntimeError) as caught:
        torch["save"](said, file)
    return not_saved(caught.value)


@pytest.mark.parametrize("said", [UNEXPECTED, FAILED])
@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (0, StorageFullError("torch.save could not write {}: No space left on device")),
        (1 << 30, StorageError("torch.save could not write {} to its end: most likely the disk or a quota was full")),
    ],
)
def test_a_file_that_could_not_be_saved_is_told_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, free: int, expected: TrainerError
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    for file in (tmp_path / "last.pt", str(tmp_path / "last.pt")):
        error = made_of(said, file)
        assert type(error) is type(expected)
        assert str(error).startswith(str(expected).format(file))


def test_what_is_written_into_a_file_object_has_no_name() -> None:
    assert str(made_of(UNEXPECTED, object())).startswith("torch.save could not write to its end: ")


def test_another_error_of_a_checkpoint_is_no_such_one() -> None:
    assert (
        made_of("[enforce fail at inline_container.cc:250] . file in archive is not in a subdirectory", "a") is None
    )
