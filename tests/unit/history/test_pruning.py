"""Pruning removes whole jobs that have certainly ended, and nothing else, wherever it is killed."""

import contextlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import obstore
import pytest
from ddpjob_operator.history import PlaceError, Retention, Stock, kept_jobs, open_place, places, pruning
from ddpjob_operator.history.pruning import folder_of
from ddpjob_supervisor.history import store_target
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import DirectoryTarget, Target
from obstore.store import MemoryStore

DAY = 86400.0
Write = Callable[..., HistoryWriter]


def keep(
    target: Callable[[HistoryWriter], Target], name: str, uid: str, *, result: str = "succeeded"
) -> HistoryWriter:
    for node in (1, 0):
        writer = HistoryWriter("team", name, uid, node, 1, 1)
        journal = Journal("place", writer, SecretValues({}), 1, lambda writer=writer: target(writer))  # type: ignore[misc]
        journal.hear(1, b"x" * 1000 + b"\n")
        journal.end(result)
        journal.close(30)
    return writer


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a job that has ended so many days ago."""

    def write(name: str, uid: str, days: float, result: str = "succeeded") -> HistoryWriter:
        writer = keep(lambda writer: DirectoryTarget(tmp_path, writer), name, uid, result=result)
        for file in (tmp_path / "team" / name / uid).rglob("*"):
            os.utime(file, (time.time() - days * DAY,) * 2)
        return writer

    return write


def stock_of(path: Path) -> Stock:
    place = open_place(str(path))
    return Stock(place, [*kept_jobs(place, ["team"])])


def surplus(path: Path, **retention: float) -> list[str]:
    return [job.uid for job in stock_of(path).surplus(Retention(**retention), time.time())]  # type: ignore[arg-type]


def test_the_newest_of_each_name_are_kept(write: Write, tmp_path: Path) -> None:
    for number in range(4):
        write("digits", f"d{number}", 9 - number)
        write("other", f"o{number}", 9 - number)
    assert surplus(tmp_path, count=3) == ["d0", "o0"]
    assert surplus(tmp_path, count=0) == [f"{name}{number}" for number in range(4) for name in "do"]
    assert surplus(tmp_path) == []


def test_an_older_job_of_another_name_is_kept_and_keeps_none(write: Write, tmp_path: Path) -> None:
    for days, (name, uid) in zip((50, 20, 10), (("only", "o"), ("d", "d0"), ("d", "d1")), strict=True):
        write(name, uid, days)
    assert surplus(tmp_path, count=1) == ["d0"]


def test_what_was_written_to_recently_is_kept(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        days = 9 - number
        with monkeypatch.context() as patch:  # The job has also begun so long ago.
            patch.setattr(
                "ddpjob_supervisor.history.journal.time",
                SimpleNamespace(time=lambda days=days: time.time() - days * DAY, monotonic=time.monotonic),
            )
            write("digits", f"d{number}", days)
    assert surplus(tmp_path, seconds=7.5 * DAY) == ["d0", "d1"]


def test_the_oldest_go_until_the_rest_is_small_enough(write: Write, tmp_path: Path) -> None:
    for number in range(4):
        write("digits", f"d{number}", 9 - number)
    sizes = stock_of(tmp_path)
    size = sum(map(sizes.size, sizes.jobs))
    assert surplus(tmp_path, size=size) == []
    assert surplus(tmp_path, size=size - 1) == ["d0"]
    assert surplus(tmp_path, size=size // 2 + 50) == ["d0", "d1"]
    assert surplus(tmp_path, size=size - 1, count=1) == ["d0", "d1", "d2"]


@pytest.mark.parametrize(
    ("result", "days", "goes"),
    [
        *(("succeeded", 1.1, True), ("succeeded", 0.9, False), ("failed", 7.1, True), ("failed", 6.9, False)),
        *(("stopped", 99, False), ("", 99, False)),
    ],
)
def test_only_what_has_certainly_ended_is_removed(
    write: Write, tmp_path: Path, result: str, days: float, *, goes: bool
) -> None:
    write("digits", "uid", days, result)
    for limit in ({"count": 0}, {"size": 0}):
        assert (surplus(tmp_path, **limit) == ["uid"]) == goes


def test_nothing_is_removed_but_what_is_certainly_the_jobs(write: Write, tmp_path: Path) -> None:
    mine, other = write("digits", "mine", 3), write("digits", "other", 3)
    folder = tmp_path / "team/digits/mine"
    (process,) = (folder / "node-00000").iterdir()
    segment = next(process.glob("log-*"))
    theirs = next((tmp_path / other.node_folder).rglob("log-*"))
    foreign = [
        folder / "notes.txt",
        process / "notes.txt",
        process / segment.name.replace("log-000001", "log-000002"),
        process / segment.name.replace("log-000001", "log-000003"),
    ]
    foreign[2].write_bytes(theirs.read_bytes())
    foreign[3].write_bytes(segment.read_bytes().partition(b"\n")[0])
    for file in foreign[:2]:
        file.write_text("mine")
    (folder / "node-00002").symlink_to(theirs.parent)
    stock = stock_of(tmp_path)
    (job,) = (job for job in stock.jobs if job.uid == mine.uid)
    said: list[str] = []
    stock.remove(job, said.append)
    assert all(file.exists() for file in (*foreign, theirs))
    assert not segment.exists()
    assert said == [f"{tmp_path}/{folder_of(job)} is kept with 4 files that are not certainly this job's"]
    assert [job.uid for job in stock_of(tmp_path).jobs] == ["other"]


def test_it_can_be_killed_anywhere(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("digits", "uid", 3)
    real, left = places.DirectoryPlace.remove, 0

    def remove(place: places.DirectoryPlace, path: str) -> None:
        nonlocal left
        if left == 0:
            raise PlaceError("killed")
        left -= 1
        real(place, path)

    monkeypatch.setattr(places.DirectoryPlace, "remove", remove)
    for _ in range(20):
        left, stock = 1, stock_of(tmp_path)
        if not (chosen := [*stock.surplus(Retention(count=0), time.time() + 2 * DAY)]):
            break
        with contextlib.suppress(PlaceError):
            stock.remove(chosen[0], str)
    assert not [*(tmp_path / "team/_jobs").iterdir()]
    assert not (tmp_path / "team/digits/uid").exists()


def test_of_a_job_that_cannot_be_read_nothing_is_removed(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tree(*_: object) -> None:
        raise PlaceError("it says no")

    write("digits", "uid", 3)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(places.DirectoryPlace, "tree", tree)
    stock = stock_of(tmp_path)
    for retention in (Retention(count=0), Retention(seconds=0), Retention(size=0)):
        assert [*stock.surplus(retention, time.time() + 9 * DAY)] == []
    with pytest.raises(PlaceError, match="it says no"):
        stock.remove(stock.jobs[0], str)
    assert (sorted(tmp_path.rglob("*")), [*stock.unreadable]) == (before, stock.jobs)


def test_an_object_store_is_pruned_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(store_target, "opened", lambda _: store)
    uids = random.sample(["one", "two", "three"], 3)
    for uid in uids:
        keep(lambda writer: store_target.StoreTarget("s3://bucket", writer), "digits", uid)
        time.sleep(0.002)  # The index tells jobs apart that begin in different milliseconds.
    obstore.put(store, f"team/digits/{uids[0]}/node-00000/x", b"foreign")
    place = places.StorePlace("s3://bucket", store)
    stock = Stock(place, [*kept_jobs(place, ["team"])])
    (job,) = stock.surplus(Retention(count=2), time.time() + 2 * DAY)
    assert stock.remove(job, str) > 2000
    paths = [item["path"] for page in obstore.list(store) for item in page]
    assert [path for path in paths if uids[0] in path] == [f"team/digits/{uids[0]}/node-00000/x"]
    assert [job.uid for job in kept_jobs(place, ["team"])] == [uids[2], uids[1]]


@pytest.mark.parametrize("kind", ["directory", "store"])
def test_a_job_with_more_files_than_are_read_at_once_is_removed_by_several_calls(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place, store = open_place(str(tmp_path)), MemoryStore()
    if kind == "store":
        place = places.StorePlace("s3://bucket", store)
        monkeypatch.setattr(store_target, "opened", lambda _: store)
        keep(lambda writer: store_target.StoreTarget("s3://bucket", writer), "digits", "uid")
    else:
        write("digits", "uid", 3)
    files = len([*place.tree("team/digits/uid")])
    most = random.randint(1, files)
    monkeypatch.setattr(pruning, "MOST_FILES", most)
    for call in range(1, 1 + files // most + 1):
        stock, said = Stock(place, [*kept_jobs(place, ["team"])]), list[str]()
        (job,) = stock.surplus(Retention(count=0), time.time() + 2 * DAY)
        stock.remove(job, said.append)
        assert len([*place.tree("team/digits/uid")]) == max(0, files - call * most)
        goes_on = f"{place}/team/digits/uid may have more files than one call removes; the next call continues"
        assert said == [goes_on] * (call <= files // most)
    assert [*kept_jobs(place, ["team"])] == []
