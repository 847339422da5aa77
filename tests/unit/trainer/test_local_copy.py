"""The copy of the newest checkpoint that a supervisor keeps: who gets it, when, and how large it may be."""

import errno
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pytest
from ddpjob.checkpoint.content import Sink
from ddpjob.checkpoint.local_copy import LocalCopies
from ddpjob.checkpoint.object_store import ObjectStore
from ddpjob.checkpoint.reading import Found
from ddpjob.group.shared_file import SharedFile
from ddpjob_rank.errors import CheckpointMissedError, StorageUnavailableError, SupersededError
from ddpjob_rank.machine import memory
from ddpjob_rank.manifests.manifest import Manifest, encoded
from ddpjob_rank.reporting import copy_handover as messages
from ddpjob_supervisor.node.copy_holder import CopyHolder
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from tests.support.copy_holder import holding

URL = "memory://jobs/digits"
MIB = 1 << 20


@dataclass
class Node:
    """Rank 0's node, on which one attempt follows another, and the store."""

    patch: pytest.MonkeyPatch
    holder: CopyHolder
    store: MemoryStore = field(default_factory=MemoryStore)
    asked: list[str] = field(default_factory=list)
    """The requests to the store since it is away."""

    def begin(self, attempt: int) -> None:
        """Begins an attempt of the ranks."""
        self.patch.setenv("DDPJOB_ATTEMPT", str(attempt))

    def opened(self, url: str = URL) -> ObjectStore:
        return ObjectStore(url, 3, self.store)

    def write(self, attempt: int, step: int, content: bytes = b"") -> ObjectStore:
        storage = self.opened()
        storage.write(manifest(attempt, step), state(content or f"{attempt}/{step}".encode()))
        return storage

    def write_elsewhere(self, attempt: int, step: int, run: str = "") -> None:
        """Another node writes, whose copy this node does not have."""
        with self.patch.context() as patch:
            patch.delenv("DDPJOB_HEARTBEAT")
            self.opened().write(manifest(attempt, step, run), state(b"elsewhere"))

    def resumed(self, url: str = URL) -> Found[bytes]:
        found = self.opened(url).newest(Path.read_bytes, retry_seconds=0)
        assert found
        return found

    def lose_store(self) -> None:
        """Lets each request to the store fail from now on."""

        def fail(name: str) -> Any:
            self.asked.append(name)
            raise GenericError("Generic S3 error: Server returned non-2xx status code: 503: ")

        for name in ("list_with_delimiter", "put", "get", "get_ranges", "head", "open_writer"):
            self.patch.setattr(obstore, name, lambda *_, name=name, **__: fail(name))

    def step_without_store(self, url: str = URL) -> int | None:
        """The step from which the ranks resume while the store is away; None if they cannot."""
        self.lose_store()
        try:
            return self.resumed(url).manifest.step
        except StorageUnavailableError:
            return None


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(tmp_path / "0"))
    monkeypatch.delenv("DDPJOB_CHECKPOINT_LOCAL_COPY_BYTES", raising=False)
    with holding(tmp_path / "0.copy") as holder:
        node = Node(monkeypatch, holder)
        node.begin(1)
        yield node


def manifest(attempt: int, step: int, run: str = "") -> Manifest:
    return Manifest(step, 1, step * 64, 2, 64, "uid", tuple(range(attempt + 1)), run=run)


def state(written: bytes) -> Callable[[Sink], object]:
    return lambda file: file.write(written)


def test_a_forked_child_holds_no_copy(node: Node) -> None:
    storage = node.write(1, 10)
    held = storage._copies._held
    assert held is not None
    child = os.fork()
    if not child:
        os._exit(storage._copies._held is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert storage._copies._held is held


def test_the_next_attempt_resumes_from_the_copy_without_a_request_to_the_store(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.write(1, 10)
    node.write(1, 20)
    node.begin(2)
    node.lose_store()
    storage = node.opened()
    found = storage.newest(Path.read_bytes)
    assert found
    assert (found.manifest.step, found.state) == (20, b"1/20")
    assert found.location.startswith(f"{URL}/step-00000020-")
    assert storage.newest_attempt() == 1
    storage.tidy(manifest(2, 20), found.location)
    assert node.asked == []
    assert "step 20 is restored from the local copy" in capsys.readouterr().out
    node.begin(3)
    assert node.step_without_store() == 20, "the second attempt has saved nothing"


def test_a_checkpoint_that_was_read_from_the_store_is_copied_too(node: Node) -> None:
    node.write_elsewhere(1, 10)
    node.begin(2)
    assert node.resumed()
    node.begin(3)
    assert node.step_without_store() == 10


@pytest.mark.parametrize(
    ("later", "url", "step"),
    [(1, URL, 10), (2, URL, 10), (3, URL, None), (2, f"{URL}2", None), (2, "memory://jobs", None)],
)
def test_only_the_next_attempt_gets_a_copy_and_only_of_its_own_storage(
    node: Node, later: int, url: str, step: int | None
) -> None:
    node.write(1, 10)
    node.begin(later)
    assert node.step_without_store(url) == step


def test_without_a_supervisor_nothing_is_copied(node: Node) -> None:
    node.patch.setattr(SharedFile, "seal", pytest.fail)
    node.write_elsewhere(1, 10)
    assert node.step_without_store() is None


@pytest.mark.parametrize("content", [b"", b"1/1O", b"1/10 and more"])
def test_a_copy_with_a_wrong_checksum_is_not_used(
    node: Node, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    node.write(1, 10)
    found = node.resumed()
    false, described = SharedFile.in_memory(), SharedFile.in_memory()
    false.write(memoryview(content))
    described.write(memoryview(encoded(found.manifest)))
    assert messages.keep(found.location, false.descriptor, described.descriptor)
    node.begin(2)
    assert node.resumed().state == b"1/10"
    assert "is not used: its checksum differs" in capsys.readouterr().err


@pytest.mark.parametrize("odd", ["pipe", "directory", "for writing", "socket"])
@pytest.mark.parametrize("which", ["state", "manifest"])
def test_a_copy_that_cannot_be_read_is_not_used(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str], odd: str, which: str
) -> None:
    node.write(1, 10)
    found = node.resumed()
    described = SharedFile.in_memory()
    described.write(memoryview(encoded(found.manifest)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        unreadable = {
            "pipe": lambda: os.pipe()[0],
            "directory": lambda: os.open(tmp_path, os.O_RDONLY),
            "for writing": lambda: os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY),
            "socket": ours.detach,
        }[odd]()
        files = [unreadable, described.descriptor] if which == "state" else [described.descriptor, unreadable]
        assert messages.keep(found.location, *files)
    node.begin(2)
    storage = node.opened()
    found_again = storage.newest(Path.read_bytes, retry_seconds=0)
    assert found_again
    assert found_again.state == b"1/10"
    assert f"the local copy of {found.location} is not used: " in capsys.readouterr().err
    storage.write(manifest(2, 20), state(b"2/20"))
    node.begin(3)
    assert node.step_without_store() == 20


def test_a_rank_that_may_open_only_one_more_file_gets_no_copy(node: Node) -> None:
    node.write(1, 10)
    node.begin(2)
    received = messages.received

    def received_in_part(connection: socket.socket) -> tuple[bytes, tuple[int, ...]]:
        said, files = received(connection)
        for file in files[1:]:
            os.close(file)
        return said, files[:1]

    with node.patch.context() as patch:
        patch.setattr(messages, "received", received_in_part)
        before = files_in_memory()
        assert messages.ask() is None
    assert files_in_memory() == before
    assert node.resumed().state == b"1/10"


def test_a_copy_that_cannot_be_decoded_is_not_used(node: Node) -> None:
    node.write(1, 10)
    node.begin(2)
    decoded = list[Path]()

    def decode(file: Path) -> bytes:
        decoded.append(file)
        if len(decoded) == 1:
            raise ValueError("not this one")
        return file.read_bytes()

    found = node.opened().newest(decode)
    assert found
    assert (len(decoded), found.state) == (2, b"1/10")


def test_a_checkpoint_is_not_copied_if_a_newer_one_was_passed_over(node: Node) -> None:
    node.write_elsewhere(1, 10)
    node.write_elsewhere(2, 20)
    node.begin(3)

    def decode(file: Path) -> bytes:
        decoded.append(file)
        if len(decoded) == 1:
            raise ValueError("of a newer version")
        return file.read_bytes()

    decoded = list[Path]()
    found = node.opened().newest(decode, start_over=True)
    assert found
    assert found.manifest.step == 10
    assert taken() is None


@pytest.mark.parametrize("function", ["memfd_create", "write"])
def test_a_copy_that_cannot_be_made_costs_no_checkpoint(node: Node, function: str) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    storage = node.write(1, 10)
    with node.patch.context() as patch:
        patch.setattr(os, function, fail)
        storage.write(manifest(1, 20), state(b"1/20"))
    node.begin(2)
    assert node.resumed().manifest.step == 20
    assert taken(), "it is copied as it is read"


def test_a_state_that_cannot_be_written_leaves_no_copy_in_memory(node: Node) -> None:
    storage = node.opened()
    before = files_in_memory()

    def encode(file: Sink) -> None:
        file.write(b"half")
        raise ValueError("this cannot be encoded")

    with pytest.raises(ValueError, match="this cannot be encoded"):
        storage.write(manifest(1, 10), encode)
    assert files_in_memory() == before


def test_a_commit_invalidates_the_older_copy_before_there_is_a_new_one(node: Node) -> None:
    storage = node.write(1, 10)
    with node.patch.context() as patch:
        patch.setattr(LocalCopies, "keep", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            storage.write(manifest(1, 20), state(b"1/20"))
    node.begin(2)
    assert node.resumed().manifest.step == 20


def test_a_save_that_fails_before_its_commit_leaves_the_copy_valid(node: Node) -> None:
    storage = node.write(1, 10)
    node.lose_store()
    with pytest.raises(CheckpointMissedError):
        storage.write(manifest(1, 20), state(b"1/20"))
    node.begin(2)
    assert node.step_without_store() == 10


@pytest.mark.parametrize("writer", [(2, "2026-b"), (2, "2024-b"), (3, "2025-b")])
def test_whoever_resumed_from_a_copy_saves_nothing_if_somebody_else_has_saved_since(
    node: Node, writer: tuple[int, str]
) -> None:
    node.write(1, 10)
    node.write_elsewhere(writer[0], 30, writer[1])
    node.begin(2)
    storage = node.opened()
    found = storage.newest(Path.read_bytes)
    assert found
    assert found.manifest.step == 10
    with pytest.raises(SupersededError, match=rf"there is a checkpoint of attempt {writer[0]} of run {writer[1]}"):
        storage.write(manifest(2, 20, "2025-a"), state(b"here"))
    node.begin(9)
    assert node.resumed().state == b"elsewhere"


def test_whoever_resumed_from_a_copy_is_not_superseded_by_itself(node: Node) -> None:
    node.write(1, 10)
    node.begin(2)
    storage = node.opened()
    assert storage.newest(Path.read_bytes)
    for step in (20, 30):
        storage.write(manifest(2, step), state(b"here"))
    node.begin(9)
    assert node.resumed().manifest.step == 30


@pytest.mark.parametrize(
    ("free", "given", "size"),
    [
        (8 * MIB, None, 2 * MIB),
        (8 * MIB, None, -2 * MIB - 1),
        (8 * MIB, str(3 * MIB), 2 * MIB + 1),
        (80 * MIB, str(MIB), -2 * MIB),
        (0, None, -1),
    ],
)
def test_a_copy_has_at_most_a_quarter_of_the_free_memory_or_what_is_given(
    node: Node, capsys: pytest.CaptureFixture[str], free: int, given: str | None, size: int
) -> None:
    """A negative size is too large."""
    node.patch.setattr(memory, "free", lambda: free)
    if given is not None:
        node.patch.setenv("DDPJOB_CHECKPOINT_LOCAL_COPY_BYTES", given)
    storage = node.opened()
    for step in (10, 20):
        storage.write(manifest(1, step), state(os.urandom(abs(size))))
    assert capsys.readouterr().out.count("no local copy of the checkpoint is kept") == (size < 0)
    node.begin(2)
    assert node.step_without_store() == (20 if size > 0 else None)


def test_a_limit_of_0_ends_copies_without_a_word(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.patch.setenv("DDPJOB_CHECKPOINT_LOCAL_COPY_BYTES", "0")
    node.write(1, 10)
    assert node.step_without_store() is None
    assert "local copy" not in capsys.readouterr().out


@pytest.mark.parametrize(("free", "both"), [(16 * MIB, True), (15 * MIB, False)])
def test_the_former_copy_stays_until_the_new_one_is_kept_if_there_is_room_for_both(
    node: Node, free: int, *, both: bool
) -> None:
    node.patch.setattr(memory, "free", lambda: free)
    storage, stays = node.write(1, 10, bytes(2 * MIB)), list[bool]()
    node.patch.setattr(memory, "free", lambda: free - 2 * MIB)

    def encode(file: Sink) -> None:
        file.write(bytes(2 * MIB))
        stays.append(taken() is not None)

    storage.write(manifest(1, 20), encode)
    assert stays == [both]
    assert taken(), "the new copy is kept"


def test_a_copy_that_is_not_made_frees_the_memory_of_the_former_one(node: Node) -> None:
    storage = node.write(1, 10)
    node.patch.setattr(memory, "free", lambda: 0)
    storage.write(manifest(1, 20), state(b"larger than what was there before"))
    assert taken() is None
    assert not node.holder.holds


def test_a_forked_child_such_as_a_worker_of_a_loader_does_not_hold_the_copies(node: Node) -> None:
    storage, held = node.write(1, 10), list[int]()

    def encode(file: Sink) -> None:
        file.write(b"half")
        if child := os.fork():
            held.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            os._exit(files_in_memory())

    assert taken()
    storage.write(manifest(1, 20), encode)
    assert held == [2], "those of the holder, which is a thread of this process here"


def test_a_copy_can_be_neither_changed_nor_executed_nor_opened_by_other_users(node: Node) -> None:
    node.write(1, 10)
    files = taken()
    assert files
    for file in files:
        assert os.fstat(file.descriptor).st_mode & 0o777 == 0o600
        assert os.fstat(file.descriptor).st_nlink == 0, "it has no name"
        assert not os.get_inheritable(file.descriptor)
    with pytest.raises(PermissionError):
        os.pwrite(files[0].descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        files[0].empty()


def files_in_memory() -> int:
    """How many such files this process has open, without those that the garbage collector would close."""
    gc.collect()
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += "memfd:ddpjob" in str(link.readlink())
    return count


def taken() -> tuple[SharedFile, SharedFile] | None:
    """The files of the copy that the holder has."""
    answer = messages.ask()
    return answer and (SharedFile(answer[1]), SharedFile(answer[2]))
