"""Which of the checkpoints of Hugging Face's Trainer is the newest that is whole. Their files are made here."""

import io
import json
import random
import struct
import zipfile
from pathlib import Path

import pytest
from ddpjob.checkpoint.trainer_directory import mark, newest_of_trainer
from ddpjob_rank.errors import StorageUnavailableError

from tests.support.seed import SEED

DRAW = random.Random(f"{SEED} trainer directory")


def safetensors() -> bytes:
    header = json.dumps({"__metadata__": {}, "weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}})
    return struct.pack("<Q", len(header)) + header.encode() + DRAW.randbytes(32)


def archive() -> bytes:
    """A file as torch.save writes it: a zip archive without compression."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("archive/data.pkl", DRAW.randbytes(40))
        file.writestr("archive/data/0", DRAW.randbytes(400))
    return content.getvalue()


def checkpoint(directory: Path, step: int, uid: str | None = None) -> Path:
    path = directory / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(safetensors())
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "training_args.bin"):
        (path / name).write_bytes(archive())
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    if uid is not None:
        mark(path, uid)
    return path


def newest(directory: Path) -> Path | None:
    return newest_of_trainer(directory).found


def test_the_newest_is_found_by_its_number(tmp_path: Path) -> None:
    for step in DRAW.sample([9, 80, 500], 3):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-900.zip").touch()
    (tmp_path / "runs").mkdir()
    assert newest(tmp_path) == tmp_path / "checkpoint-500"


def test_there_is_none(tmp_path: Path) -> None:
    assert newest_of_trainer(tmp_path / "none").found is None
    assert newest_of_trainer(tmp_path).found is None


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state_1.pth",
        "training_args.bin",
        "trainer_state.json",
    ],
)
def test_a_checkpoint_with_a_torn_file_is_passed_over_and_set_aside(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, torn = checkpoint(tmp_path, 10), checkpoint(tmp_path, 20)
    content = (torn / name).read_bytes()
    for size in (0, 1, DRAW.randrange(len(content)), len(content) - 1):
        (torn / name).write_bytes(content[:size])
        assert newest(tmp_path) == whole, (size, SEED)
    assert torn.exists(), "a look changes nothing"
    newest_of_trainer(tmp_path).set_aside()
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-10", "broken-checkpoint-20"}
    assert f"{torn} is passed over: {name}" in capsys.readouterr().err


def test_damaged_bytes_in_a_file_with_checksums_are_found(tmp_path: Path) -> None:
    whole, damaged = checkpoint(tmp_path, 10), checkpoint(tmp_path, 20)
    content = bytearray((damaged / "optimizer.pt").read_bytes())
    content[content.index(b"archive/data/0") + 14 + DRAW.randrange(400)] ^= 1 << DRAW.randrange(8)
    (damaged / "optimizer.pt").write_bytes(content)
    assert newest(tmp_path) == whole


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("trainer_state.json", None),
        ("trainer_state.json", '{"global_step": 19}'),
        ("trainer_state.json", "[]"),
        ("checkpoint-is-incomplete.txt", "in progress"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'),
        ("model.safetensors", "\0" * 200),
        ("optimizer.pt", "\0" * 200),
    ],
)
def test_what_else_shows_that_a_checkpoint_is_unfinished(tmp_path: Path, file: str, content: str | None) -> None:
    whole, unfinished = checkpoint(tmp_path, 10), checkpoint(tmp_path, 20)
    if content is None:
        (unfinished / file).unlink()
    else:
        (unfinished / file).write_text(content)
    assert newest(tmp_path) == whole


def test_the_format_of_torch_save_before_zip_is_not_judged(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, 10)
    (old / "pytorch_model.bin").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    assert newest(tmp_path) == old


def test_those_of_another_job_are_not_found_for_this_one(tmp_path: Path) -> None:
    ours = checkpoint(tmp_path, 10, "ours")
    checkpoint(tmp_path, 20, "theirs")
    checkpoint(tmp_path, 30)
    (tmp_path / "checkpoint-30" / "ddpjob.json").write_text("[")
    assert newest_of_trainer(tmp_path, "ours").found == ours
    assert newest_of_trainer(tmp_path, "").found is None


def test_a_checkpoint_that_cannot_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path, 10)
    refused = checkpoint(tmp_path, 20) / "model.safetensors"
    opened = Path.open

    def refuses(path: Path, *args: str, **kwargs: str) -> object:
        if path == refused:
            raise OSError(5, "Input/output error", str(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuses)
    with pytest.raises(StorageUnavailableError, match="checkpoint-20 cannot be read: Input/output error"):
        newest(tmp_path)


def test_two_broken_ones_of_one_step_are_both_set_aside(tmp_path: Path) -> None:
    for _ in range(2):
        (checkpoint(tmp_path, 20) / "trainer_state.json").unlink()
        newest_of_trainer(tmp_path).set_aside()
    assert {path.name for path in tmp_path.iterdir()} == {"broken-checkpoint-20", "broken-checkpoint-20-2"}
