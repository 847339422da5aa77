"""What a manifest says, whoever wrote it: newer, broken, nobody's, or not to be read now."""

import errno
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.manifests import manifest as manifests
from ddpjob_rank.manifests.manifest import Manifest, encoded, read_manifest
from ddpjob_rank.manifests.unusable import (
    BrokenError,
    ForeignError,
    NewerError,
    UnavailableError,
    UnusableError,
)

WHOLE = Manifest(
    120, 2, 7680, 2, 64, "uid", (1, 2), arguments=("--lr", "0.1"), run="now", seed=7, size=9, sha256="ab"
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "step-00000120"
    directory.mkdir()
    return directory


def put(checkpoint: Path, content: str | bytes) -> Path:
    (checkpoint / "manifest.json").write_bytes(content.encode() if isinstance(content, str) else content)
    return checkpoint


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(encoded(WHOLE)) | changes, indent=1)


def without(*names: str) -> str:
    return json.dumps({name: value for name, value in json.loads(encoded(WHOLE)).items() if name not in names})


def test_what_was_written_is_read(checkpoint: Path) -> None:
    assert read_manifest(put(checkpoint, encoded(WHOLE))) == WHOLE


def test_fields_of_a_later_version_are_ignored_and_those_that_an_earlier_one_lacks_have_their_defaults(
    checkpoint: Path,
) -> None:
    assert read_manifest(put(checkpoint, changed(tomorrow=[{"deep": None}]))) == WHOLE
    assert read_manifest(put(checkpoint, without("program", "arguments", "run"))).arguments == ()


WRONG = ("120", None, [1], {}, True, 1.5, -1, 2**63, 10**400)


@pytest.mark.parametrize("field", sorted({field.name for field in fields(Manifest)} - {"format"}))
@pytest.mark.parametrize("value", WRONG, ids=lambda value: str(value)[:20])
def test_a_field_of_another_type_is_a_broken_manifest_and_never_a_type_error(
    checkpoint: Path, field: str, value: Any
) -> None:
    put(checkpoint, changed(**{field: value}))
    try:
        read = getattr(read_manifest(checkpoint), field)
    except BrokenError as error:
        assert "manifest.json is damaged" in str(error)  # noqa: PT017  (some of these fit some fields)
    else:
        assert read == (tuple(value) if isinstance(value, list) else value)


FOREIGN: dict[str, str | bytes] = {
    "no object": "[1]",
    "a page's": '{"name": "app", "icons": []}',
    "an empty one": "{}",
    "another program's": changed(program="pdf-maker"),
    "text": "step 120",
    "deep": "[" * 100_000,
    "long": b" " * (2 * 1024 * 1024),
    "a format that is none": changed(format="1"),
}
BROKEN: dict[str, str | bytes] = {
    "torn": encoded(WHOLE)[:200],
    "torn at once": encoded(WHOLE)[:5],
    "torn, of an earlier version": b'{\n "step": 120,\n "epo',
    "empty": b"",
    "zeros": bytes(4096),
    "without a step": without("step"),
    "without a line": changed(lineage=[]),
    "not UTF-8": encoded(WHOLE) + b"\xff",
}
CASES: list[tuple[str, str | bytes, type[UnusableError], str]] = [
    *((name, content, ForeignError, "manifest.json ") for name, content in FOREIGN.items()),
    *((name, content, BrokenError, "manifest.json is damaged") for name, content in BROKEN.items()),
    ("a later format", changed(format=3), NewerError, "its format is 3, this version reads 1 to 2"),
]


@pytest.mark.parametrize(("content", "kind", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_manifest_that_cannot_be_used_is_one_of_four(
    checkpoint: Path, content: str | bytes, kind: type[UnusableError], words: str
) -> None:
    with pytest.raises(UnusableError, match=words) as found:
        read_manifest(put(checkpoint, content))
    assert type(found.value) is kind


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["pipe", "socket", "endless device", "link", "link to a device", "directory"])
def test_what_is_no_regular_file_is_not_opened(checkpoint: Path, what: str) -> None:
    path = checkpoint / "manifest.json"
    match what:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, 0o140600)
        case "endless device":
            if os.geteuid() != 0:
                pytest.skip("only root makes devices")
            os.mknod(path, 0o020600, os.makedev(1, 5))
        case "link":
            path.symlink_to((put(checkpoint, encoded(WHOLE)) / "manifest.json").rename(checkpoint / "other.json"))
        case "link to a device":
            path.symlink_to("/dev/zero")
        case _:
            path.mkdir()
    with pytest.raises(ForeignError, match=r"manifest.json is not a regular file"):
        read_manifest(checkpoint)


def test_a_link_to_a_checkpoint_is_none(checkpoint: Path) -> None:
    put(checkpoint, encoded(WHOLE))
    link = checkpoint.with_name("step-00000130")
    link.symlink_to(checkpoint)
    with pytest.raises(ForeignError, match="not a directory"):
        read_manifest(link)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EPERM])
def test_what_the_file_system_refuses_cannot_be_read_now(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(manifests, "read_regular", fail)
    with pytest.raises(UnavailableError, match=f"manifest.json cannot be read: {os.strerror(number)}"):
        read_manifest(put(checkpoint, encoded(WHOLE)))
