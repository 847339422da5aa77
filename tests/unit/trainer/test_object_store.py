"""Checkpoints in an object store in memory: the promises of a directory, without renames."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import obstore
import pytest
from ddpjob.checkpoint import object_store, store_client
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.content import Sink
from ddpjob.checkpoint.object_store import PROBE, ObjectStore
from ddpjob.checkpoint.opening import open_storage
from ddpjob.checkpoint.reading import Found
from ddpjob.checkpoint.store_client import StoreError, asking
from ddpjob_rank.errors import (
    CheckpointMissedError,
    CheckpointUnusableError,
    ConfigError,
    StorageError,
    StorageUnavailableError,
    SupersededError,
)
from ddpjob_rank.manifests.manifest import NAME, Manifest, decoded, encoded
from ddpjob_rank.manifests.unusable import UnavailableError, UnusableError
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import MemoryStore

URL = "memory://jobs/digits"
Save = tuple[int, int]
"""Attempt and step."""

AWAY = "Generic S3 error: Error performing PUT http://s3/x in 1ms - Server returned non-2xx status code: 503: "
BROKEN_CONNECTION = "Generic S3 error: HTTP error\n\nHttpError {\n    kind: Request,"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def manifest(attempt: int, step: int, uid: str = "uid", run: str = "") -> Manifest:
    return Manifest(step, 1, step * 64, 2, 64, uid, tuple(range(attempt + 1)), run=run)


def opened(store: MemoryStore, keep: int = 3) -> ObjectStore:
    return ObjectStore(URL, keep, store)


def state(written: bytes) -> Callable[[Sink], object]:
    return lambda file: file.write(written)


def write(store: MemoryStore, *saves: Save, keep: int = 3) -> None:
    for attempt, step in saves:
        opened(store, keep).write(manifest(attempt, step), state(f"{attempt}/{step}".encode()))


def put(store: MemoryStore, *saves: Save) -> None:
    """Puts checkpoints there whatever order they are in: as if nobody had minded."""
    for save in saves:
        apart = MemoryStore()
        write(apart, save)
        for key in keys(apart):
            obstore.put(store, key, obstore.get(apart, key).bytes())


def keys(store: MemoryStore) -> list[str]:
    """All but the probe's."""
    return sorted(item["path"] for items in obstore.list(store) for item in items if item["path"] != PROBE)


def key(store: MemoryStore, step: int, name: str) -> str:
    return next(key for key in keys(store) if key.startswith(f"step-{step:08}-") and key.endswith(f"/{name}"))


def read(store: MemoryStore, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def saves(store: MemoryStore) -> list[Save]:
    found = [decoded(read(store, key)) for key in keys(store) if key.endswith("/manifest.json")]
    return sorted((manifest.attempt, manifest.step) for manifest in found if manifest.sha256)


def newest(store: MemoryStore, **how: Any) -> Found[bytes] | None:
    return opened(store).newest(Path.read_bytes, retry_seconds=0, **how)


def newest_step(store: MemoryStore, **how: Any) -> int | None:
    found = newest(store, **how)
    return found.manifest.step if found else None


def test_what_is_written_in_parts_is_found(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 1000)
    written = bytes(range(256)) * 50
    opened(store).write(manifest(1, 120), state(written))
    found = newest(store)
    assert found
    assert (found.location.rpartition("-")[0], found.state) == (f"{URL}/step-00000120", written)
    assert (found.manifest.step, found.manifest.samples, found.manifest.lineage) == (120, 7680, (0, 1))


def test_what_writes_a_state_may_reuse_its_memory(store: MemoryStore) -> None:
    def encode(file: Sink) -> None:
        buffer = bytearray(1000)
        for number in range(5):
            buffer[:] = bytes([number]) * 1000
            file.write(memoryview(buffer))

    opened(store).write(manifest(1, 120), encode)
    found = newest(store)
    assert found
    assert found.state == b"".join(bytes([number]) * 1000 for number in range(5))


def test_an_empty_state_is_one(store: MemoryStore) -> None:
    opened(store).write(manifest(1, 120), lambda _: None)
    found = newest(store)
    assert found
    assert found.state == b""


def test_what_is_copied_to_a_directory_is_read_there(store: MemoryStore, tmp_path: Path) -> None:
    write(store, (1, 120))
    for name in keys(store):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(read(store, name))
    found = CheckpointDirectory(tmp_path, keep=1).newest(Path.read_bytes)
    assert found
    assert found.state == b"1/120"


def test_an_empty_store_has_no_checkpoint_and_no_warning(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert newest(store) is None
    assert capsys.readouterr().err == ""
    assert keys(store) == []


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([(1, 100), (1, 120)], (1, 120)),
        ([(1, 120), (2, 130), (1, 150)], (2, 130)),
        ([(3, 90), (1, 120), (2, 130)], (3, 90)),
        ([(9, 10), (10, 5)], (10, 5)),
    ],
)
def test_the_newest_is_of_the_latest_attempt_then_of_the_latest_step(
    store: MemoryStore, there: list[Save], expected: Save
) -> None:
    put(store, *there)
    found = newest(store)
    assert found
    assert found.state.decode() == "{}/{}".format(*expected)
    assert opened(store).newest_attempt() == max(there)[0]


@pytest.mark.parametrize(
    ("there", "written", "stay"),
    [
        ([(1, 100), (1, 110), (1, 120)], (1, 130), [(1, 120), (1, 130)]),
        ([(1, 100), (1, 110), (1, 120)], (2, 115), [(1, 110), (1, 120), (2, 115)]),
        ([(1, 120), (1, 150), (2, 130)], (2, 150), [(2, 130), (2, 150)]),
    ],
)
def test_the_newest_two_of_a_line_stay(
    store: MemoryStore, there: list[Save], written: Save, stay: list[Save]
) -> None:
    put(store, *there)
    write(store, written, keep=2)
    assert saves(store) == stay
    assert len(keys(store)) == 3 * len(stay), "nothing else is left of the others"


def replaced(name: str, content: bytes) -> Callable[[MemoryStore, int], object]:
    return lambda store, step: obstore.put(store, key(store, step, name), content)


def deleted(name: str) -> Callable[[MemoryStore, int], object]:
    return lambda store, step: obstore.delete(store, key(store, step, name))


DAMAGES: dict[str, tuple[Callable[[MemoryStore, int], object], str]] = {
    "no state": (deleted("state.pt"), "it has no state.pt"),
    "torn manifest": (replaced("manifest.json", b'{\n "program"'), "manifest.json is damaged"),
    "short state": (replaced("state.pt", b"1/12"), "state.pt has 4 bytes, its manifest says 5"),
    "another state": (replaced("state.pt", b"1/121"), "the checksum of state.pt"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint_is_passed_over_set_aside_and_removed_in_the_end(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    break_it, reason = DAMAGES[damage]
    write(store, (1, 60), (1, 120))
    break_it(store, 120)
    assert newest_step(store) == 60
    said = capsys.readouterr().err
    assert f"warning: checkpoint {URL}/step-00000120-" in said
    assert f"is passed over: {reason}" in said
    assert newest_step(store) == 60
    assert capsys.readouterr().err == "", "it is set aside"
    write(store, (2, 120), (2, 180), keep=1)
    assert newest_step(store) == 180
    assert sum(name.endswith(".broken") for name in keys(store)) == 1
    for step in (200, 220):
        replaced("state.pt", b"")(store, step - 20)
        assert newest_step(store, start_over=True) in {None, step - 20 - 20}
        write(store, (2, step), keep=1)
    assert sum(name.endswith(".broken") for name in keys(store)) <= 2


def test_if_all_are_broken_nothing_starts_unless_it_is_asked_for(store: MemoryStore) -> None:
    write(store, (1, 60))
    deleted("state.pt")(store, 60)
    before = keys(store)
    for _ in range(2):
        with pytest.raises(
            CheckpointUnusableError, match=rf"no checkpoint in {URL} .* step-00000060-.* --start-over"
        ):
            newest(store)
    assert keys(store) == before
    assert newest(store, start_over=True) is None
    with pytest.raises(CheckpointUnusableError):
        newest(store)


def test_if_all_were_set_aside_the_newest_of_them_is_named(store: MemoryStore) -> None:
    write(store, (1, 60), (1, 120), (1, 180))
    for step in (60, 120, 180):
        deleted("state.pt")(store, step)
    assert newest(store, start_over=True) is None
    assert sum(name.endswith(".broken") for name in keys(store)) == 3
    with pytest.raises(CheckpointUnusableError, match=r"can be used; the newest is step-00000180-"):
        newest(store)


@pytest.mark.parametrize(
    ("error", "lasting", "lost", "said"),
    [
        (AWAY, False, False, "the server answers 503"),
        (AWAY.replace("503", "501"), True, False, "the server answers 501"),
        (AWAY.replace("503", "400") + "<Code>Bad</Code>", True, False, "the server answers 400 Bad"),
        (AWAY.replace("503", "301"), True, False, "the server answers 301"),
        (AWAY.replace("503", "401"), True, False, "the credentials are not valid (401)"),
        (AWAY.replace("503", "403"), True, False, "the credentials do not permit it (403)"),
        (AWAY.replace("503", "404"), True, False, "the bucket does not exist (404)"),
        (AWAY.replace("503", "408"), False, False, "the server answers 408"),
        (AWAY.replace("503", "409"), False, False, "the server answers 409"),
        (AWAY.replace("503", "429"), False, False, "the server answers 429"),
        (BROKEN_CONNECTION, False, True, "the connection to the server broke"),
        (BROKEN_CONNECTION.replace("Request", "Decode"), False, True, "the connection to the server broke"),
        (BROKEN_CONNECTION.replace("Request", "Timeout"), False, True, "the server has not answered in time"),
        (BROKEN_CONNECTION.replace("Request", "Connect"), False, False, "there is no connection to the server"),
        (BROKEN_CONNECTION.replace("Request", "Odd"), False, True, "obstore raises GenericError"),
        ("GET http://169.254.169.254/latest", False, False, "no credentials were found in the environment, and the"),
        ("odd", False, False, "obstore raises GenericError"),
    ],
)
def test_what_a_store_refuses_is_told_in_words_and_whether_it_will_do_so_again(
    error: str, said: str, *, lasting: bool, lost: bool
) -> None:
    with pytest.raises(StoreError) as raised, asking("x cannot be read"):
        raise GenericError(error)
    assert str(raised.value).startswith(f"x cannot be read: {said}")
    assert (raised.value.lasting, raised.value.lost) == (lasting, lost)


@pytest.mark.parametrize("kind", [PermissionDeniedError, UnauthenticatedError])
def test_a_refusal_without_a_number_is_one_of_the_credentials(kind: type[Exception]) -> None:
    with pytest.raises(StoreError, match=r"^x: the credentials do not permit it$"), asking("x"):
        raise kind("no")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (FileNotFoundError("no such key"), FileNotFoundError),
        (FileNotFoundError("<Code>NoSuchKey</Code>"), FileNotFoundError),
        (FileNotFoundError("<Code>NoSuchBucket</Code>"), StoreError),
        (FileNotFoundError("<Code>ContainerNotFound</Code>"), StoreError),
        (GenericError("odd"), StoreError),
        (KeyError("x"), KeyError),
    ],
)
def test_an_error_that_is_expected_stays_what_it_is_unless_the_whole_bucket_is_missing(
    raised: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as found, asking("x", FileNotFoundError):
        raise raised
    assert type(found.value) is kind
    said = StoreError("a", ValueError("b"))
    with pytest.raises(StoreError) as found, asking("x"):
        raise said
    assert found.value is said


def test_a_store_that_cannot_be_opened_is_told_in_one_line_without_its_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def from_url(url: str, **how: Any) -> None:
        asked.append((url, how))
        raise ValueError("a region is missing\nsecret: s3cr3t")

    monkeypatch.setattr(store_client, "from_url", from_url)
    with pytest.raises(ConfigError, match=r"^s3://jobs/x cannot be used: a region is missing$"):
        store_client.opened("s3://jobs/x")
    client = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=5),
        "timeout": timedelta(seconds=90),
    }
    assert asked == [
        ("s3://jobs/x", {"client_options": client, "retry_config": {"retry_timeout": timedelta(seconds=15)}})
    ]


def test_one_of_a_newer_format_stops_all_and_is_never_removed(store: MemoryStore) -> None:
    write(store, (1, 60), (1, 120))
    name = key(store, 120, "manifest.json")
    obstore.put(store, name, json.dumps(json.loads(read(store, name)) | {"format": 99}).encode())
    with pytest.raises(CheckpointUnusableError, match=r"step-00000120-\d+ cannot be used: its format is 99"):
        newest(store)
    assert newest_step(store, start_over=True) == 60
    write(store, (1, 140), (1, 160), keep=1)
    assert name in keys(store)


FOREIGN = [
    "step-00000001/model.safetensors",
    "step-00000001/manifest.json",
    "step-00000001",
    "step-7/state.pt",
    "a/b",
]


@pytest.mark.parametrize("theirs", FOREIGN)
def test_what_is_not_ours_stays_and_refuses_nothing(store: MemoryStore, theirs: str) -> None:
    obstore.put(store, theirs, b"theirs")
    assert newest(store) is None
    write(store, (1, 1), (1, 2), (1, 3), keep=1)
    assert newest_step(store) == 3
    assert read(store, theirs) == b"theirs"


def test_another_jobs_are_removed_only_once_this_ones_line_contains_them(store: MemoryStore) -> None:
    write(store, (1, 60), (1, 80))
    apart = replace(manifest(1, 100, "another"), lineage=(1, 2, 3))
    opened(store, keep=1).write(apart, state(b"state"))
    assert saves(store) == [(1, 60), (1, 80), (3, 100)]
    opened(store, keep=1).write(replace(apart, step=120, ancestors=("uid",)), state(b"state"))
    assert saves(store) == [(3, 120)]


@pytest.mark.parametrize("step", [125, 130, 140], ids=["before", "the very step", "after"])
def test_a_late_process_writes_nothing_once_a_later_attempt_has_saved(store: MemoryStore, step: int) -> None:
    write(store, (1, 120), (2, 130))
    before = keys(store)
    with pytest.raises(SupersededError, match=f"a later run has taken over {URL}: .* of attempt 2, .* attempt 1"):
        opened(store, keep=1).write(manifest(1, step), encode=pytest.fail)
    assert keys(store) == before


@pytest.mark.parametrize("step", [130, 150], ids=["the very step", "another"])
@pytest.mark.parametrize("resumed", [True, False], ids=["it resumed before", "it has only saved"])
def test_a_later_attempt_that_saves_while_a_late_process_writes_wins(
    store: MemoryStore, step: int, *, resumed: bool
) -> None:
    def encode(file: Sink) -> None:
        file.write(b"late")
        if resumed:
            opened(store).tidy(manifest(2, 120), "")
        write(store, (2, 130))

    with pytest.raises(SupersededError, match="of attempt 2"):
        opened(store, keep=1).write(manifest(1, step), encode)
    assert saves(store) == [(2, 130)]
    assert sum(name.endswith("state.pt") for name in keys(store)) == 1


def test_who_is_given_up_cannot_commit_any_more(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later attempt comes after the late one has looked for the last time."""
    late, commit = opened(store), ObjectStore._commit

    def commit_late(self: ObjectStore, checkpoint: str, manifest_: Manifest) -> None:
        opened(store).tidy(manifest(2, 120), "")
        commit(self, checkpoint, manifest_)

    monkeypatch.setattr(ObjectStore, "_commit", commit_late)
    with pytest.raises(SupersededError, match="attempt 2 has removed the checkpoint that this run was writing"):
        late.write(manifest(1, 130), state(b"late"))
    assert saves(store) == []
    assert [name.rpartition("/")[2] for name in keys(store)] == ["manifest.json"]
    assert newest(store) is None


def test_who_has_committed_is_not_given_up(store: MemoryStore) -> None:
    write(store, (1, 130))
    opened(store).tidy(manifest(2, 130), "")
    assert newest_step(store) == 130


def test_what_killed_processes_leave_is_removed_by_the_next_save_and_few_marks_stay(store: MemoryStore) -> None:
    for attempt in range(1, 20):
        name = f"step-{attempt * 10:08}-{attempt}"
        obstore.put(store, f"{name}/begun.json", encoded(manifest(attempt, attempt * 10)))
        obstore.put(store, f"{name}/state.pt", b"half")
        assert newest_step(store) == (attempt * 10 - 9 if attempt > 1 else None)
        write(store, (attempt + 1, attempt * 10 + 1), keep=2)
    assert [name for name in keys(store) if name.endswith("begun.json")] == [
        key(store, step, "begun.json") for step in (181, 191)
    ]
    assert len({name.partition("/")[0] for name in keys(store)}) <= 2 + 2 + 1


def test_what_another_job_is_writing_stays(store: MemoryStore) -> None:
    theirs = {"step-00000010-1/begun.json": encoded(manifest(1, 10, "another")), "step-00000010-1/state.pt": b"half"}
    for name, content in theirs.items():
        obstore.put(store, name, content)
    write(store, (1, 20), (1, 30), keep=1)
    assert {name: read(store, name) for name in theirs} == theirs


def test_who_is_late_does_not_give_up_what_a_later_attempt_is_writing(store: MemoryStore) -> None:
    def encode(file: Sink) -> None:
        file.write(b"later")
        write(store, (1, 130))

    opened(store).write(manifest(2, 120), encode)
    found = newest(store)
    assert found
    assert found.state == b"later"


def test_a_removal_that_is_cut_off_leaves_nothing_that_looks_whole(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletes, real = list[str](), obstore.delete

    def delete(store: Any, key: str) -> None:
        deletes.append(key.rpartition("/" if "/" in key else ".")[2])
        real(store, key)

    write(store, (1, 60), (1, 120))
    monkeypatch.setattr(obstore, "delete", delete)
    write(store, (1, 180), keep=2)
    assert deletes == ["manifest.json", "state.pt", "begun.json"]
    for step in (120, 180):
        replaced("state.pt", b"")(store, step)
    assert newest(store, start_over=True) is None
    deletes.clear()
    write(store, (1, 240), keep=1)
    assert deletes == ["state.pt", "begun.json", "broken", "manifest.json"], "until the end it can be set aside again"


class DeadError(BaseException):
    """A process is gone."""


def dies_at(line: int, act: Callable[[], object]) -> bool:
    """Does something until it comes to so many lines of this room's code, if it does."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("/object_store.py", "/store_client.py", "/checkpoint_storage.py")):
            return None
        left -= event == "line"
        if left < 0:
            raise DeadError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except DeadError:
        return True
    finally:
        sys.settrace(before)
    return False


def test_whichever_line_of_a_save_is_the_last_the_next_goes_on_and_nothing_piles_up(store: MemoryStore) -> None:
    keep, at, lines = 2, 0, 0

    def resume() -> int:
        found = opened(store, keep).newest(Path.read_bytes, retry_seconds=0)
        if found:
            opened(store, keep).tidy(found.manifest, found.location)
        return found.manifest.step if found else 0

    while dies_at(lines, lambda: write(store, (1, resume() + 10), keep=keep)):
        lines += 5
        found = resume()
        assert found in {at, at + 10}, f"line {lines}"
        at = found
        states = [name for name in keys(store) if name.endswith("/state.pt")]
        assert len(states) <= keep + 1, f"line {lines}: {states}"
    assert lines > 5 * 30
    assert len(keys(store)) <= 3 * keep + keep + 1


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, function: str, error: str | Exception, part: str, *, done: bool = False
) -> Iterator[list[str]]:
    """Lets requests fail whose keys contain `part`; with `done` the store has done what it was asked for."""
    real, asked = getattr(obstore, function), []

    def fail(store: Any, key: str = "", *more: Any, **others: Any) -> Any:
        if part not in key:
            return real(store, key, *more, **others)
        asked.append(key)
        if done:
            real(store, key, *more, **others)
        raise error if isinstance(error, Exception) else GenericError(error)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, function, fail)
        patch.setattr(object_store, "PAUSE_SECONDS", 0)
        yield asked


@pytest.mark.parametrize("part", ["begun.json", "manifest.json"])
def test_a_commit_whose_answer_is_lost_is_one(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    storage, real, lost = opened(store), obstore.put, []

    def put_and_lose(store: Any, key: str, *more: Any, **others: Any) -> Any:
        answer = real(store, key, *more, **others)
        if part in key and not lost:
            lost.append(key)
            raise GenericError(BROKEN_CONNECTION)
        return answer

    monkeypatch.setattr(object_store, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(obstore, "put", put_and_lose)
    storage.write(manifest(1, 10), state(b"state"))
    assert lost
    assert newest_step(store) == 10


def test_a_commit_of_which_nobody_knows_is_decided_by_the_next_save(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = opened(store)
    monkeypatch.setattr(object_store, "COMMIT_TRIES", 1)  # Otherwise it would ask what is there.
    for step, done in ((10, True), (20, False)):
        with (
            failing(monkeypatch, "put", BROKEN_CONNECTION, "manifest.json", done=done) as asked,
            pytest.raises(CheckpointMissedError),
        ):
            storage.write(manifest(1, step), state(b"state"))
        assert asked
    storage.write(manifest(1, 30), state(b"state"))
    assert saves(store) == [(1, 10), (1, 30)]


@pytest.mark.parametrize("part", ["begun.json", "manifest.json"])
def test_a_store_that_is_away_costs_one_checkpoint_and_the_next_save_clears_up(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    storage = opened(store)
    with (
        failing(monkeypatch, "put", AWAY, part) as asked,
        pytest.raises(
            CheckpointMissedError,
            match=rf"checkpoint {URL}/step-00000010-\d+ could not be saved: .*{part} cannot be written: the server"
            r" answers 503\. The checkpoints before it are intact",
        ),
    ):
        storage.write(manifest(1, 10), state(b"state"))
    assert len(asked) == 1, "what is left is not waited for"
    storage.write(manifest(1, 20), state(b"state"))
    assert saves(store) == [(1, 20)]
    assert sum(name.endswith("state.pt") for name in keys(store)) == 1


def test_an_error_of_the_state_itself_is_not_the_stores(store: MemoryStore) -> None:
    def encode(file: Sink) -> None:
        file.write(b"half")
        raise ValueError("this cannot be encoded")

    with pytest.raises(ValueError, match="this cannot be encoded"):
        opened(store).write(manifest(1, 10), encode)
    assert [name.rpartition("/")[2] for name in keys(store)] == ["manifest.json"]


@pytest.mark.parametrize(("function", "part"), [("get", "manifest.json"), ("get_ranges", ""), ("head", "")])
def test_one_that_cannot_be_read_now_is_never_given_up_for_an_older_one(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, function: str, part: str
) -> None:
    write(store, (1, 60), (1, 120))
    before = keys(store)
    storage = opened(store)
    for start_over in (False, True):
        with (
            failing(monkeypatch, function, AWAY, f"step-00000120{'-' * bool(part)}"),
            pytest.raises(StorageUnavailableError, match=r"the server answers 503\. Retried for 0 s\. Training does"),
        ):
            storage.newest(Path.read_bytes, start_over=start_over, retry_seconds=0)
    assert keys(store) == before
    assert newest_step(store) == 120


def test_a_bucket_that_is_gone_is_not_taken_for_one_without_checkpoints(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, (1, 60))
    storage, gone = opened(store), FileNotFoundError("status code: 404: <Code>NoSuchBucket</Code>")
    with (
        failing(monkeypatch, "get", gone, "manifest.json"),
        pytest.raises(ConfigError, match=r"manifest.json cannot be read: the bucket does not exist \(404 NoSuchB"),
    ):
        storage.newest(Path.read_bytes, start_over=True, retry_seconds=0)


def test_a_state_that_is_removed_while_it_is_read_is_none(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, (1, 60), (1, 120))
    with failing(monkeypatch, "get_ranges", FileNotFoundError("status code: 404"), "step-00000120"):
        assert newest_step(store) == 60
    assert "is passed over: it has no state.pt" in capsys.readouterr().err


def test_a_store_that_cannot_be_listed_has_not_no_checkpoints(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, (1, 60))
    storage = opened(store)
    with failing(monkeypatch, "list_with_delimiter", AWAY, ""), pytest.raises(StorageUnavailableError):
        storage.newest(Path.read_bytes, start_over=True, retry_seconds=0)
    with failing(monkeypatch, "list_with_delimiter", AWAY, ""), pytest.raises(StorageUnavailableError):
        storage.newest_attempt()


def test_a_reader_finds_one_though_the_newest_is_removed_while_it_reads(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, (1, 60))
    storage, whole = opened(store), ObjectStore.whole

    def whole_late(self: ObjectStore, checkpoint: str) -> Any:
        if "step-00000060" in checkpoint:
            write(store, (1, 80), keep=1)
        return whole(self, checkpoint)

    monkeypatch.setattr(ObjectStore, "whole", whole_late)
    found = storage.newest(Path.read_bytes)
    assert found
    assert found.manifest.step == 80


def test_nothing_is_removed_for_one_that_is_not_whole(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, (1, 60))
    storage, commit = opened(store, keep=1), ObjectStore._commit

    def commit_and_lose(self: ObjectStore, checkpoint: str, manifest: Manifest) -> None:
        commit(self, checkpoint, manifest)
        replaced("state.pt", b"sta")(store, 120)

    monkeypatch.setattr(ObjectStore, "_commit", commit_and_lose)
    with pytest.raises(StorageError, match=r"step-00000120-\d+ was written, but is not intact: state.pt has 3 bytes"):
        storage.write(manifest(1, 120), state(b"state 120"))
    assert newest_step(store) == 60


def test_a_store_that_overwrites_is_refused_at_the_start(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, key, content, **_: real(store, key, content))
    with pytest.raises(
        ConfigError, match=f"{URL} cannot be used: its server does not refuse to create an object twice"
    ):
        opened(store)
    assert keys(store) == []


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("403 Forbidden: <Error><Code>AccessDenied</Code>", ConfigError, "the credentials do not permit it (403 Acc"),
        (
            "404 Not Found: <Error><Code>NoSuchBucket</Code>",
            ConfigError,
            "the bucket does not exist (404 NoSuchBucket",
        ),
        (
            "400 Bad Request: <Error><Code>InvalidRegion</Code>",
            ConfigError,
            "the server answers 400 InvalidRegion; ch",
        ),
        (
            "503: <Error><Code>SlowDown</Code>",
            StorageUnavailableError,
            "the server answers 503 SlowDown; check that",
        ),
        ("429 Too Many Requests", StorageUnavailableError, "the server answers 429; check that"),
    ],
)
def test_what_a_store_refuses_for_good_is_told_from_what_may_pass(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, answer: str, kind: type[Exception], words: str
) -> None:
    secret = "wJalrXUtnFEMI"  # What a server's answer may repeat.
    text = f"Generic: Error performing GET http://s3/b?sig={secret} - Server returned non-2xx status code: {answer}"
    with (
        failing(monkeypatch, "list_with_delimiter", f"{text} <StringToSign>{secret}", ""),
        pytest.raises(kind) as error,
    ):
        opened(store)
    assert str(error.value).startswith(f"{URL} cannot be listed: ")
    assert words in str(error.value)
    chain: BaseException | None = error.value
    while chain:
        assert secret not in str(chain)
        assert chain.__suppress_context__
        chain = chain.__cause__


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ddpjob.checkpoint.object_store", None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpjob\[store\]'"):
        open_storage("s3://bucket/x", keep=1)


def test_a_path_is_a_directory(tmp_path: Path) -> None:
    assert isinstance(open_storage(tmp_path / "new", keep=1), CheckpointDirectory)


def test_names_of_saves_are_names_of_checkpoints(store: MemoryStore) -> None:
    write(store, (1, 100_000_000))
    assert all(NAME.fullmatch(name.partition("/")[0]) for name in keys(store))


def test_credentials_that_are_found_nowhere_are_told() -> None:
    asked = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP error"
    assert "no credentials were found in the environment" in str(StoreError("x", GenericError(asked)))


@pytest.mark.parametrize("for_good", [False, True])
def test_older_checkpoints_stay_where_the_new_one_cannot_be_read_back(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, for_good: bool
) -> None:
    def check(*_: object) -> None:
        raise UnusableError("it is torn") if for_good else UnavailableError("nobody answers")

    write(store, (1, 10), (1, 20), keep=2)
    before = keys(store)
    monkeypatch.setattr(ObjectStore, "_check_written", check)
    if for_good:
        with pytest.raises(StorageError, match="was written, but is not intact: it is torn"):
            write(store, (1, 30), keep=2)
    else:
        write(store, (1, 30), keep=2)
        assert "cannot be read back now (nobody answers): older checkpoints are kept" in capsys.readouterr().err
    assert {*before} < {*keys(store)}
    monkeypatch.undo()
    write(store, (1, 40), keep=2)
    assert not {*before} & {*keys(store)}
