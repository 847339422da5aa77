"""Whatever stands in a history, it is read as data: bounded, from inside of its folder, and each problem is said."""

import errno
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from ddpjob_operator.api import BadInputError, secrecy
from ddpjob_operator.history import ManyJobsError, find_history, open_place
from ddpjob_operator.history.job_history import JobHistory, _began
from ddpjob_operator.history.places import MEANINGS, DirectoryPlace, PlaceError, StorePlace
from ddpjob_supervisor.history import secret_values, store_target
from ddpjob_supervisor.history.segments import HistoryWriter, Segment, Series
from obstore.store import MemoryStore

from .conftest import LONG_SECONDS, Begin, Read, texts


def written(begin: Begin, *lines: str, **where: object) -> Path:
    """The segment with the lines of a node; `where` is as for `begin`."""
    journal = begin(**where)
    journal.hear(1, "".join(f"{line}\n" for line in lines).encode())
    journal.close(LONG_SECONDS)
    target = journal._make()
    folder = target._place / target._writer.node_folder / journal._folder  # type: ignore[attr-defined]
    (file,) = folder.glob("log-*")
    return file


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"7",
        b'{"x":"no time"}',
        b'{"t":"1","x":"a"}',
        b'{"t":true,"x":"a"}',
        b'{"t":-1,"x":"a"}',
        b'{"t":1e300,"x":"a"}',
        b'{"t":NaN,"x":"a"}',
        b'{"t":1,"x":7}',
        b'{"t":1,"x":null}',
        b"\xff\xfe",
    ],
    ids=lambda line: line[:16],
)
def test_a_line_that_is_no_record_is_left_out(begin: Begin, read: Read, line: bytes) -> None:
    file = written(begin, "before")
    file.write_bytes(file.read_bytes() + line + b"\n" + json.dumps({"t": 1, "x": "after"}).encode() + b"\n")
    assert texts(read()) == ["before", "after"]


def test_half_a_character_is_no_error(begin: Begin, read: Read) -> None:
    file = written(begin, "a")
    file.write_bytes(file.read_bytes() + b'{"t":1,"x":"\\ud800"}\n')
    assert texts(read()) == ["a", "?"]


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ({"v": 2, "uid": "x"}, "newer version"),
        ({"v": 1, "uid": "other"}, "another job's"),
        ({"v": "1"}, "does not begin as a segment does"),
        ([], "does not begin as a segment does"),
    ],
)
def test_a_segment_that_is_not_ours_is_left_out_and_said(
    begin: Begin, read: Read, head: object, problem: str
) -> None:
    file = written(begin, "ours")
    forged = file.with_name(file.name.replace("log-000001", "log-000002"))
    forged.write_text(f'{json.dumps(head)}\n{{"t":1,"x":"theirs"}}\n')
    history = read()
    assert texts(history) == ["ours"]
    assert [said for said in history.problems if problem in said]


@pytest.mark.parametrize("ranks", [0, -1, 65, 10**30, True, "2", None, 1.5])
def test_a_forged_number_of_ranks_is_not_believed(begin: Begin, read: Read, ranks: object) -> None:
    file = written(begin, "forged")
    head, rest = file.read_bytes().split(b"\n", 1)
    file.write_bytes(json.dumps(json.loads(head) | {"ranks": ranks}).encode() + b"\n" + rest)
    with pytest.raises(BadInputError, match="holds no history of digits that can be read"):
        read()
    written(begin, "ours", ranks=2, incarnation=2)
    assert read().ranks == 2


@pytest.mark.parametrize("lost", [True, 0, -1, 10**30, "7", None])
def test_a_forged_number_of_missing_lines_is_left_out(begin: Begin, read: Read, lost: object) -> None:
    file = written(begin, "ours")
    file.write_bytes(file.read_bytes() + json.dumps({"t": 1, "lost": lost}).encode() + b"\n")
    assert texts(read()) == ["ours"]


@pytest.mark.parametrize("url", ["s3://me:pa55word@bucket/x", "s3://bucket/x?token=pa55word", "https://pa55word@x/y"])
def test_credentials_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadInputError, match="without user, password or query") as error:
        open_place(url)
    assert "pa55word" not in str(error.value)


def test_names_that_are_none_are_not_read(begin: Begin, read: Read) -> None:
    file = written(begin, "ours")
    for name in (
        "log-1.jsonl",
        "log-000002-00001-9.jsonl.tmp",
        f"x{file.name}",
        f"{file.name}\n",
        "log-٠٠٠٠٠٢-00001-1796009007123.jsonl",
    ):
        file.with_name(name).write_bytes(file.read_bytes())
    for folder in ("other", "..x", "1796009007123-00001-XXXXXXXX"):
        (file.parents[1] / folder).mkdir()
        (file.parents[1] / folder / file.name).write_bytes(file.read_bytes())
    assert texts(read()) == ["ours"]


def test_neither_links_nor_pipes_nor_devices_are_read(begin: Begin, read: Read, tmp_path: Path) -> None:
    file = written(begin, "ours")
    outside = tmp_path.parent / f"outside-{random.random()}"
    outside.write_bytes(file.read_bytes().replace(b"ours", b"theirs"))
    for number, make in enumerate((outside.__class__.symlink_to, None), 2):
        odd = file.with_name(file.name.replace("log-000001", f"log-00000{number}"))
        if make:
            odd.symlink_to(outside)
        else:
            os.mkfifo(odd)
    (file.parents[1] / file.parent.name.replace("-00001-", "-00009-")).symlink_to(file.parent)
    assert texts(read()) == ["ours"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "link/x", "a/./x", "a", "to-x"])
def test_no_path_leads_out_of_a_place(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path)
    (root / "to-x").symlink_to("../x")
    (tmp_path / "x").write_text("secret")
    assert DirectoryPlace(root).read(path, 100) is None
    assert DirectoryPlace(root).files(f"{path}/..") == []


def test_a_place_may_itself_be_a_link(begin: Begin, tmp_path: Path) -> None:
    written(begin, "ours")
    link = tmp_path.parent / f"link-{random.random()}"
    link.symlink_to(tmp_path)
    assert texts(find_history(open_place(str(link)), None, None, None)) == ["ours"]


def test_only_so_much_of_a_segment_is_read(begin: Begin, read: Read) -> None:
    file = written(begin, "ours")
    with file.open("ab") as content:
        content.truncate(1 << 34)
    began = time.monotonic()
    assert texts(read()) == ["ours"]
    assert time.monotonic() - began < 5


def test_pieces_without_an_end_are_put_together_only_up_to_a_length(begin: Begin, read: Read) -> None:
    file = written(begin, "ours")
    piece = json.dumps({"t": 1, "x": "x" * 100_000, "c": 1}).encode() + b"\n"
    file.write_bytes(file.read_bytes() + 9 * piece)
    assert max(map(len, texts(read()))) <= 400_000
    assert sum(map(len, texts(read()))) == 4 + 900_000


def test_the_newest_job_of_a_name_is_read_or_that_of_a_uid(tmp_path: Path) -> None:
    uids = [f"uid-{number}" for number in random.sample(range(10**5, 10**6), 3)]
    uids.insert(1, uids[0][:-1])  # A whole uid is chosen, although another one begins with it.
    for moment, uid in enumerate(uids):
        writer = HistoryWriter("team", "digits", uid, 0, 1, 1)
        series = Series("log", writer, 1 << 20)
        series.add(1, 1.0, {"t": 1, "x": uid})
        folder = tmp_path / writer.node_folder / writer.folder(1e9 + moment, "0123abcd")
        folder.mkdir(parents=True)
        (folder / series.unsaved[0].name).write_bytes(series.unsaved[0].content)
    place = open_place(str(tmp_path))
    newest = find_history(place, "team", "digits", None)
    assert texts(newest) == [uids[-1]]
    assert [(other.uid, other.began) for other in newest.others] == [(uids[at], 1e9 + at) for at in (2, 1, 0)]
    assert texts(find_history(place, None, "digits", uids[1])) == [uids[1]]
    with pytest.raises(BadInputError, match="several uids begin with uid-"):
        find_history(place, None, "digits", "uid-")
    for namespace, name, uid in (
        *(("other", "digits", None), (None, "other", None), (None, "digits", "other")),
        *(("..", "digits", None), (None, "../digits", None), (None, "a\nb", None)),
    ):
        with pytest.raises(BadInputError, match="holds no history"):
            find_history(place, namespace, name, uid)


def test_several_jobs_are_named(begin: Begin, tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(begin, name, name=name)
    with pytest.raises(ManyJobsError, match=r"which job\? team/(one, team/two|two, team/one)"):
        find_history(open_place(str(tmp_path)), None, None, None)
    assert texts(find_history(open_place(str(tmp_path)), None, "two", None)) == ["two"]


def test_the_folder_of_one_job_can_be_read_alone(begin: Begin, tmp_path: Path, uid: str) -> None:
    written(begin, "hello")
    copied = tmp_path.parent / f"copied-{random.random()}"
    (tmp_path / "team" / "digits" / uid).rename(copied)
    history = find_history(open_place(str(copied)), None, None, None)
    assert (history.identity.name, history.identity.uid, texts(history)) == ("digits", uid, ["hello"])
    start = uid[: random.randint(1, len(uid))]
    assert find_history(open_place(str(copied)), None, None, start).identity.uid == uid
    with pytest.raises(BadInputError, match="no history that can be read"):
        find_history(open_place(str(copied)), None, None, uid[1:] + "x")
    with pytest.raises(BadInputError, match="no history of other"):
        find_history(open_place(str(copied)), None, "other", None)


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "x/../y", "..", "", "x\ny"])
def test_a_name_that_is_none_in_kubernetes_becomes_nobodys(
    begin: Begin, read: Read, tmp_path: Path, uid: str, name: str
) -> None:
    file = written(begin, "forged")
    head, rest = file.read_bytes().split(b"\n", 1)
    file.write_bytes(json.dumps(json.loads(head) | {"name": name}).encode() + b"\n" + rest)
    with pytest.raises(BadInputError, match="holds no history"):
        read()
    with pytest.raises(BadInputError, match="holds no history"):
        find_history(open_place(str(tmp_path / "team" / "digits" / uid)), None, None, None)


def test_a_history_of_another_job_in_the_folder_of_a_job_is_not_read(
    begin: Begin, read: Read, tmp_path: Path
) -> None:
    written(begin, "theirs", name="other")
    (tmp_path / "team" / "other").rename(tmp_path / "team" / "digits")
    with pytest.raises(BadInputError, match="holds no history of digits"):
        read()


def test_a_uid_that_begins_like_the_jobs_is_another_one(begin: Begin, tmp_path: Path, uid: str) -> None:
    written(begin, "theirs")
    (tmp_path / "team/digits" / uid).rename(tmp_path / "team/digits" / uid[:5])
    with pytest.raises(BadInputError, match="holds no history of digits"):
        find_history(open_place(str(tmp_path)), None, "digits", uid[:5])


def test_an_empty_folder_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "team" / "digits").mkdir(parents=True)
    with pytest.raises(BadInputError, match="holds no history of digits"):
        find_history(open_place(str(tmp_path)), None, None, None)


def test_time_and_tail_read_only_the_segments_that_they_need(
    begin: Begin, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpjob_supervisor.history.segments.SEGMENT_BYTES", 3000)
    monkeypatch.setattr("ddpjob_supervisor.history.journal.time.time", lambda: next(clock))
    clock = iter(range(10**9, 10**9 + 10**6))
    journal = begin()
    for number in range(1000):
        journal.hear(1, f"{number}\n".encode())
    journal.close(LONG_SECONDS)
    history = read()
    lines = [*history.log(history.segments(0, "log"))]
    read_paths: list[str] = []
    place, real = history.place, history.place.read
    monkeypatch.setattr(place, "read", lambda path, limit: (read_paths.append(path), real(path, limit))[1])
    at = random.randrange(900, 990)
    assert texts(history, since=lines[at].time) == [line.text for line in lines[at:]]
    assert texts(history, tail=7) == [str(number) for number in range(993, 1000)]
    assert len(read_paths) < len(history.segments(0, "log"))


def test_an_object_store_has_the_same_files(uid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(store_target, "opened", lambda _: store)
    writer = HistoryWriter("team", "digits", uid, 0, 1, 1)
    target = store_target.StoreTarget("s3://bucket/history/", writer)
    folder, series = writer.folder(1e9, "0123abcd"), Series("log", writer, 1 << 20)
    for number in range(3):
        series.add(1, 1.0, {"t": 1, "x": f"line {number}"})
        target.save(folder, series.unsaved[0])
    history = find_history(StorePlace("s3://bucket/history", store), None, None, None)
    assert texts(history) == ["line 0", "line 1", "line 2"]
    assert target.folders() == [folder]
    target.remove(folder, series.unsaved[0].name)
    target.save(folder, series.unsaved[0])
    target.remove_folder(folder)
    target.remove_folder(folder)
    assert target.folders() == []
    target.save(folder, Segment(series.unsaved[0].name, bytearray(b"something else")))
    target.remove_folder(folder)
    assert target.folders() == [folder]


def test_the_supervisor_masks_by_the_names_that_are_secret_to_the_operator() -> None:
    assert secret_values.NAMES == secrecy.NAMES


@pytest.mark.parametrize("address", ["nowhere", "s3://", "ftp://x/y"])
def test_a_place_that_is_none_is_said(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadInputError):
        open_place(address if ":" in address else str(tmp_path / address))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        *((f"Response status code: {code} me:pa55", why) for code, why in MEANINGS.items()),
        ("status code: 503", "the server answers 503"),
        ("no host at http://me:pa55@x", "Exception"),
    ],
)
def test_why_a_store_cannot_be_read_is_said_without_its_own_words(error: str, why: str) -> None:
    said = StorePlace("s3://bucket", Mock())._error(Exception(error))
    assert str(said) == f"cannot read s3://bucket: {why}"


@pytest.mark.parametrize(
    ("act", "verb"),
    [
        (lambda place: place.read("a", 1), "read"),
        (lambda place: [*place.first_files("a")], "read"),
        (lambda place: [*place.tree("a")], "read"),
        (lambda place: place.folders("a"), "read"),
        (lambda place: place.files("a"), "read"),
        (lambda place: place.remove("a"), "remove from"),
    ],
)
def test_whatever_a_store_does_not_do_is_one_error(act: Callable[[StorePlace], object], verb: str) -> None:
    with pytest.raises(PlaceError, match=f"^cannot {verb} s3://bucket: [A-Z][a-z]+Error$"):
        act(StorePlace("s3://bucket/", Mock()))


def test_what_is_removed_twice_is_no_error_and_what_cannot_be_is_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    place = DirectoryPlace(tmp_path)
    for path in ("folder/file", "folder/file", "none/file"):
        place.remove(path)
    assert place.files("folder") == []
    with pytest.raises(PlaceError, match=f"^cannot remove {tmp_path}/folder: "):
        place.remove("folder")


def test_without_the_package_for_stores_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(PlaceError, match=r"^s3://bucket: an object store needs another package: pip install"):
        open_place("s3://bucket")


@pytest.mark.parametrize("other", ["another", None], ids=["another job's", "nobody's"])
def test_a_segment_that_is_not_the_jobs_hides_none_that_is(tmp_path: Path, other: str | None) -> None:
    ours = HistoryWriter("team", "digits", "a-uid", 0, 1, 1)
    folder = tmp_path / ours.node_folder / ours.folder(1e9, "0123abcd")
    folder.mkdir(parents=True)
    for kind, name in (("events", other), ("log", "digits")):
        series = Series(kind, HistoryWriter("team", name or "digits", "a-uid", 0, 1, 1), 1 << 20)
        series.add(1, 1.0, {"t": 1, "x": "a line"})
        content = series.unsaved[0].content if name else b"{}\n"
        (folder / series.unsaved[0].name).write_bytes(content)
    assert find_history(open_place(str(tmp_path)), None, "digits", "a-uid").identity.name == "digits"


def test_an_object_that_is_gone_is_removed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("obstore.delete", Mock(side_effect=FileNotFoundError))
    StorePlace("s3://bucket", Mock()).remove("a")


def test_of_a_folder_of_another_user_nobody_knows_when_it_began() -> None:
    closed: Any = Mock(**{"folders.side_effect": PlaceError("Permission denied")})
    assert _began(closed, "team/digits/a-uid") == 0


def test_a_job_begins_with_the_first_process_of_its_first_node() -> None:
    first, later, before = (f"{moment}-00001-00000000" for moment in (10**12 + 5, 10**12 + 7, 10**12 + 1))
    nodes = {
        "a": ["README", "node-00003", "node-00004"],
        "a/node-00003": ["x", later, first],
        "a/node-00004": [before],
    }
    assert _began(Mock(folders=lambda path: nodes.get(path, [])), "a") == 10**12 + 5
    assert _began(Mock(folders=lambda _: []), "a") == 0


def test_how_many_segments_were_removed_is_said_of_each_gap_within_a_process() -> None:
    history: Any = SimpleNamespace(_records=lambda _: (), _say=[].append)
    said = history._say.__self__
    places = [("a", 1), ("a", 2), ("a", 4), ("a", 9), ("b", 12)]
    segments: Any = [
        SimpleNamespace(folder=folder, number=number, path=f"{folder}/{number}") for folder, number in places
    ]
    assert [*JobHistory._lines(history, segments)] == []
    assert said == [
        f"{gone} segments before {path} were removed, because the log is limited in size"
        for gone, path in ((1, "a/4"), (4, "a/9"))
    ]


def test_a_file_that_may_not_be_read_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("ddpjob_operator.history.places.os.open", Mock(side_effect=refused))
    with pytest.raises(PlaceError, match=rf"^cannot read {tmp_path}/team: Permission denied$"):
        open_place(str(tmp_path)).read("team", 10)


def test_a_store_that_cannot_be_opened_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Mock(side_effect=[object(), ValueError("no region\nbacktrace"), ValueError()])
    monkeypatch.setattr("obstore.store.from_url", opened)
    assert isinstance(open_place("s3://bucket/path"), StorePlace)
    assert opened.mock_calls == [call("s3://bucket/path", client_options={"allow_http": True})]
    for why in ("no region", ""):
        with pytest.raises(PlaceError, match=rf"^cannot read s3://bucket/path: {why}$"):
            open_place("s3://bucket/path")


def test_a_line_whose_process_was_killed_in_its_middle_is_not_lost() -> None:
    records = {
        "a": [{"t": 1, "x": "whole"}, {"t": 2, "x": "half of ", "c": 1}],
        "b": [{"t": 3, "x": "in two ", "c": 1}, {"t": 4, "x": "pieces"}, {"t": 5, "x": "half", "c": 1}],
    }
    history: Any = SimpleNamespace(_records=lambda segment: records[segment.folder], _say=None)
    segments: Any = [
        SimpleNamespace(folder=folder, number=1, time=moment, attempt=attempt)
        for folder, moment, attempt in (("a", 1500, 1), ("b", 2500, 2))
    ]
    assert [(line.time, line.attempt, line.text) for line in JobHistory._lines(history, segments)] == [
        (1.0, 1, "whole"),
        (1.5, 1, "half of "),
        (4.0, 2, "in two pieces"),
        (2.5, 2, "half"),
    ]


@pytest.mark.parametrize(("count", "more"), [(2, ""), (10, ""), (11, " and 1 more")])
def test_of_many_jobs_the_first_ten_are_named(tmp_path: Path, count: int, more: str) -> None:
    for number in range(count):
        (tmp_path / f"team/j{number:02}/uid").mkdir(parents=True)
    with pytest.raises(ManyJobsError) as many:
        find_history(open_place(str(tmp_path)), "team", None, None)
    assert (
        str(many.value) == f"which job? {', '.join(f'team/j{number:02}' for number in range(min(count, 10)))}{more}"
    )


def test_ten_problems_are_said_and_each_once() -> None:
    history: Any = SimpleNamespace(problems={})
    for number in (1, 1, *range(20)):
        JobHistory._say(history, f"problem {number}")
    assert [*history.problems] == ["problem 1", "problem 0", *(f"problem {number}" for number in range(2, 10))]
