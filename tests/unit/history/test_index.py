"""The index of jobs: names alone tell which jobs there are, the newest first, and how each has ended."""

import random
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import obstore
import pytest
from ddpjob_operator.history import ManyJobsError, find_history, job_index, kept_jobs, open_place, places
from ddpjob_supervisor.history import segments
from ddpjob_supervisor.history.history import NodeHistory
from ddpjob_supervisor.history.segments import HistoryWriter
from obstore.store import MemoryStore

from .conftest import LONG_SECONDS, Begin, Read, texts


def listed(place: Path) -> list[tuple[str, str, str, str]]:
    jobs = kept_jobs(open_place(str(place)), job_index.namespaces_of(open_place(str(place))))
    return [(job.namespace, job.name, job.uid, job.result) for job in jobs]


def test_both_sides_name_the_index_alike() -> None:
    assert (segments.JOBS, segments.LAST_MOMENT) == (job_index.JOBS, job_index.LAST_MOMENT)


@pytest.mark.parametrize(
    ("end", "result"),
    [
        *(((0, False), "Succeeded"), ((0, True), "Succeeded"), ((205, False), "Stopped"), ((143, True), "Stopped")),
        *(((code, False), "Failed") for code in (1, 143, 204)),
    ],
)
def test_the_index_has_how_a_job_has_ended_until_it_begins_again(
    begin: Begin, tmp_path: Path, uid: str, end: tuple[int, bool], result: str
) -> None:
    code, stopped = end

    def start(incarnation: int) -> NodeHistory:
        journal = begin(incarnation=incarnation)
        journal.hear(1, b"a line\n")
        return NodeHistory(journal)

    node = start(1)
    node.end(code, stopped=stopped)
    node.close()
    assert listed(tmp_path) == [("team", "digits", uid, result)]
    start(2).close()
    assert listed(tmp_path) == [("team", "digits", uid, "")]
    node = start(3)
    node.end(1)
    node.close()
    assert listed(tmp_path) == [("team", "digits", uid, "Failed")]
    assert len([*(tmp_path / "team" / "_jobs").iterdir()]) == 2


def test_only_node_0_writes_the_index(begin: Begin, tmp_path: Path) -> None:
    journal = begin(node=1)
    journal.hear(1, b"a line\n")
    journal.close(LONG_SECONDS)
    assert listed(tmp_path) == []


def test_a_job_of_which_nothing_was_kept_is_not_listed(begin: Begin, tmp_path: Path) -> None:
    begin().close(LONG_SECONDS)
    assert listed(tmp_path) == []


def test_without_a_right_to_the_index_the_rest_is_kept(begin: Begin, read: Read, tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "_jobs").write_text("not a folder")
    journal = begin()
    journal.hear(1, b"a line\n")
    journal.close(LONG_SECONDS)
    assert texts(read()) == ["a line"]


def test_an_object_store_is_asked_for_several_namespaces_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store, together = MemoryStore(), threading.Barrier(3)
    for space in ("a", "b", "c"):
        writer = HistoryWriter(space, "digits", "uid", 0, 1, 1)
        obstore.put(store, f"{space}/_jobs/{writer.entry(writer.folder(10**9, '0123abcd'))}", b"")
    real = obstore.list

    def listing(*given: Any, **named: Any) -> Any:
        together.wait(LONG_SECONDS)  # Only if all three ask does any of them get an answer.
        return real(*given, **named)

    monkeypatch.setattr(obstore, "list", listing)
    place = places.StorePlace("memory", store)
    assert [job.namespace for job in kept_jobs(place, job_index.namespaces_of(place))] == ["a", "b", "c"]


def test_only_so_many_namespaces_are_looked_at_and_that_is_said(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begin()
    journal.hear(1, b"a line\n")
    journal.close(LONG_SECONDS)
    monkeypatch.setattr(job_index, "MOST_NAMESPACES", 1)
    unreadable: dict[str, str] = {}
    assert len([*kept_jobs(open_place(str(tmp_path)), ["team", "zzz"], unreadable)]) == 1
    assert [*unreadable.values()] == ["there are more namespaces; only the first 1 were looked at"]


@pytest.mark.parametrize("count", [3, 4, 5])
def test_of_a_store_so_many_names_are_listed_page_by_page(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PAGE", 2)
    monkeypatch.setattr(places, "MOST_NAMES", 4)
    store = MemoryStore()
    for number in range(count):
        obstore.put(store, f"team/_jobs/{number}", b"")
    names = [*places.StorePlace("s3://bucket", store).first_files("team/_jobs")]
    assert names == [str(number) for number in range(min(count, 4))]


def test_the_newest_job_comes_first_and_pages_are_read_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, pages = MemoryStore(), []
    real = obstore.list
    monkeypatch.setattr(
        obstore, "list", lambda *given, **named: (pages.append(page) or page for page in real(*given, **named))
    )
    monkeypatch.setattr(places, "PAGE", 10)
    moments = random.sample(range(10**9, 10**9 + 10**6), 100)
    for number, moment in enumerate(moments):
        writer = HistoryWriter(random.choice(("team", "other")), f"job-{number}", f"uid-{number}", 0, 1, 1)
        entry = f"{writer.namespace}/_jobs/{writer.entry(writer.folder(moment, '0123abcd'))}"
        for name in (entry, f"{entry}_failed", f"{entry}_x", f"{writer.namespace}/_jobs/x/{entry}"):
            obstore.put(store, name, b"")
    place = places.StorePlace("s3://bucket", store)
    jobs = [*kept_jobs(place, ["other", "team"])]
    assert [job.began for job in jobs] == sorted(moments, reverse=True)
    assert {job.result for job in jobs} == {"Failed"}
    assert all(moments[int(job.uid[4:])] == job.began for job in jobs)
    pages.clear()
    assert [*islice(kept_jobs(place, ["other", "team"]), 3)] == jobs[:3]
    assert len(pages) <= 4
    pages.clear()
    with pytest.raises(ManyJobsError, match="which job"):
        find_history(place, None, None, None)
    assert len(pages) <= 10


def test_names_that_no_supervisor_gives_are_not_listed(tmp_path: Path) -> None:
    folder = tmp_path / "team" / "_jobs"
    folder.mkdir(parents=True)
    for name in (
        *("x", "123_uid_name", "8203990992876_uid_name_", "8203990992876_uid_name_running", "8203990992876_.._name"),
        *("8203990992876_uid_Name", "8203990992876_uid_name\n", "820399099287\u0666_uid_name"),
    ):
        (folder / name).touch()
    assert listed(tmp_path) == []
