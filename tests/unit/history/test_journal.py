"""What a supervisor writes of a node is read again, whatever happens to the writer, the disk or the files."""

import errno
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.recording.event import Event
from ddpjob_supervisor.history import journal as journals
from ddpjob_supervisor.history import segments
from ddpjob_supervisor.history.segments import HistoryWriter, Segment
from ddpjob_supervisor.history.targets import DirectoryTarget

from tests.support.waiting import patience, wait_for

from .conftest import GROUP, LONG_SECONDS, USER, Begin, Read, texts


def say(journal: journals.Journal, *lines: object, stream: int = 1) -> None:
    journal.hear(stream, "".join(f"{line}\n" for line in lines).encode())


def test_what_is_printed_is_read_again_with_its_time_and_its_attempt(begin: Begin, read: Read) -> None:
    before, journal = time.time(), begin()
    say(journal, "hello", "attempt 7 begins", "still the first")
    journal.attempt = 2
    say(journal, "attempt 2 begins in place: rank 1 failed", "again")
    journal.close(LONG_SECONDS)
    history = read()
    lines = [*history.log(history.segments(0, "log"))]
    assert [(line.attempt, line.text) for line in lines] == [
        *((1, text) for text in ("hello", "attempt 7 begins", "still the first")),
        *((2, text) for text in ("attempt 2 begins in place: rank 1 failed", "again")),
    ]
    assert all(before - 0.001 <= line.time <= time.time() for line in lines)
    assert history.attempts([0]) == [1, 2]


def test_pieces_of_lines_are_put_together_and_each_stream_has_its_own(begin: Begin, read: Read) -> None:
    whole = "".join(random.choices("aä\u20ac\U0001f600 ", k=400)).strip() or "a"
    journal, content = begin(), f"{whole}\n".encode()
    cuts = sorted(random.choices(range(len(content)), k=20))
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        journal.hear(1, content[start:end])
        if end < len(content):
            journal.hear(2, b"other\n")
    journal.close(LONG_SECONDS)
    assert [text for text in texts(read()) if text != "other"] == [whole]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"10%\r20%\r100%\n", ["100%"]),
        (b"10%\r20%\r   \nafter\n", ["after"]),
        (b"windows\r\n", ["windows"]),
        (b"10%\r20%", ["20%"]),
        (b"no end", ["no end"]),
        (b"\n\n", ["", ""]),
        (b"\xff\x1b[2J\x00\n", ["\ufffd\x1b[2J\x00"]),
    ],
)
def test_lines_are_kept_as_a_terminal_finally_shows_them(
    begin: Begin, read: Read, printed: bytes, shown: list[str]
) -> None:
    journal = begin()
    for at in range(len(printed)):
        journal.hear(1, printed[at : at + 1])
    journal.close(LONG_SECONDS)
    assert texts(read()) == shown


@pytest.mark.parametrize("ended", [True, False])
def test_a_very_long_line_is_divided_and_read_as_one(begin: Begin, read: Read, ended: bool) -> None:  # noqa: FBT001
    long = "é" * random.randint(40_000, 60_000)
    journal = begin()
    content = long.encode() + b"\n" * ended
    for at in range(0, len(content), 1000):
        journal.hear(1, content[at : at + 1000])
    journal.close(LONG_SECONDS)
    assert texts(read()) == [long]


def test_of_a_bar_that_never_ends_only_its_last_state_is_kept(begin: Begin, read: Read) -> None:
    journal = begin()
    for step in range(10_000):
        journal.hear(1, f"\r{step}".encode())
    journal.close(LONG_SECONDS)
    assert texts(read()) == ["9999"]


def test_values_of_secret_variables_are_masked(begin: Begin, read: Read) -> None:
    secret = f"s3cr3t-{random.randint(10**6, 10**9)}"
    journal = begin(
        HF_TOKEN=secret, KEY_PASSWORD="short", SOME_SECRET="true", MY_API_KEY="two\nlines-of-it", USER=secret
    )
    say(journal, f"token={secret}!", "short true", "lines-of-it")
    journal.note(Event("facts", time.time(), 1, 0, {"of": [{"it": f"x{secret}"}]}))
    journal.close(LONG_SECONDS)
    history = read()
    assert texts(history) == ["token=•••!", "short true", "•••"]
    assert [event["of"] for event in history.events(0)] == [[{"it": "x•••"}]]


def test_secret_variables_that_come_later_are_masked_from_then_on_beside_the_first(begin: Begin, read: Read) -> None:
    journal = begin(HF_TOKEN="the-first-token")
    journal.hide({"API_TOKEN": "a-later-token", "LR": "0.1"})
    say(journal, "the-first-token a-later-token 0.1")
    journal.close(LONG_SECONDS)
    assert texts(read()) == ["••• ••• 0.1"]


PASSWORD = f"pa55-{random.randint(10**6, 10**9)}"


@pytest.mark.parametrize(
    "address",
    [
        f"postgres://me:{PASSWORD}@db:5432/runs",
        f"https://{PASSWORD}@git.example.com/code",
        f"GET /data?x=1&access_token={PASSWORD}&y=2",
        f"https://bucket.s3.example.com/a?X-Amz-Signature={PASSWORD}#x",
        f"https://x.blob.example.com/a?sv=1&SIG={PASSWORD}",
    ],
)
def test_secrets_in_addresses_are_masked(begin: Begin, read: Read, address: str) -> None:
    journal = begin()
    say(journal, f"reads '{address}' now", "https://example.com/a?page=2&design=big&sigma=1 me@example.com a://b:c d")
    journal.note(Event("facts", time.time(), 1, 0, {"image": address}))
    journal.close(LONG_SECONDS)
    masked = address.replace(f"me:{PASSWORD}", "•••").replace(PASSWORD, "•••")
    plain = "https://example.com/a?page=2&design=big&sigma=1 me@example.com a://b:c d"
    assert texts(read()) == [f"reads '{masked}' now", plain]
    assert [event["image"] for event in read().events(0)] == [masked]


def test_a_password_in_the_address_of_a_variable_is_masked_everywhere(begin: Begin, read: Read) -> None:
    journal = begin(DATABASE=f"postgres://me:{PASSWORD}@db/runs")
    say(journal, f"the password is {PASSWORD}")
    journal.close(LONG_SECONDS)
    assert texts(read()) == ["the password is •••"]


@pytest.mark.parametrize("form", ["{}", " postgres://me:{}@db ", " /a?token={} "])
@pytest.mark.parametrize("ended", [True, False])
def test_a_secret_is_masked_where_a_long_line_is_divided(
    begin: Begin,
    read: Read,
    form: str,
    ended: bool,  # noqa: FBT001
) -> None:
    secret = f"s3cr3t-{random.randint(10**6, 10**9)}"
    journal = begin(HF_TOKEN=secret if form == "{}" else "")
    written = form.format(secret).encode()
    before = b"x" * (16 * 1024 - random.randint(1, len(written) - 1))
    content = before + written + b"y" * random.choice([100, 9000]) + b"\n" * ended
    for start, end in itertools.pairwise([0, *range(16 * 1024 + 1, 10**5, 1000)]):
        journal.hear(1, content[start:end])
    journal.close(LONG_SECONDS)
    (text,) = texts(read())
    assert text.strip("xy") == form.replace("me:", "").format("•••")


def test_only_the_owner_can_read_what_is_written(begin: Begin, tmp_path: Path) -> None:
    journal = begin()
    say(journal, "hello")
    journal.close(LONG_SECONDS)
    (file,) = tmp_path.rglob("log-*")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_first_and_the_newest_segments_stay(
    begin: Begin, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(journals, "LOG_BYTES", 10_000)
    journal = begin()
    for number in range(2000):
        say(journal, f"line {number}")
    journal.close(LONG_SECONDS)
    history = read()
    kept = [int(text.split()[1]) for text in texts(history)]
    assert kept[0] == 0
    assert kept[-1] == 1999
    gap = next(at for at in range(1, len(kept)) if kept[at] != kept[at - 1] + 1)
    assert kept[gap:] == [*range(kept[gap], 2000)]
    assert sum(file.stat().st_size for file in tmp_path.rglob("log-*")) <= 10_000
    assert any("were removed" in problem for problem in history.problems)
    assert texts(read(), tail=3) == ["line 1997", "line 1998", "line 1999"]


def test_former_processes_of_a_node_are_removed_but_the_first(
    begin: Begin, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "PROCESSES", 4)
    for number in range(8):
        journal = begin(incarnation=number + 1, attempt=number + 1)
        say(journal, f"pod {number}")
        journal.close(LONG_SECONDS)
    assert texts(read()) == ["pod 0", "pod 5", "pod 6", "pod 7"]


def test_of_a_nodes_folders_only_those_are_removed_that_are_certainly_its_own(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "PROCESSES", 3)
    changes = ({"v": 2}, {"uid": "other"}, {"name": "other"}, {"namespace": "other"}, {"node": 1}, {"incarnation": 7})
    tidy = journals.Journal._tidy
    monkeypatch.setattr(journals.Journal, "_tidy", lambda *_: None)
    for number in range(len(changes) + 5):
        journal = begin(incarnation=number + 20)
        say(journal, f"pod {number}")
        journal.close(LONG_SECONDS)
    first, *between, newest = sorted(file.parent for file in tmp_path.rglob("log-*"))
    random.shuffle(between)
    ours, shared, linked, *others = between
    for folder, change in zip(others, changes, strict=True):
        (file,) = folder.iterdir()
        head, rest = file.read_bytes().split(b"\n", 1)
        file.write_bytes(json.dumps(json.loads(head) | change).encode() + b"\n" + rest)
    notes = [folder / "notes.txt" for folder in (shared, ours.with_name("results"))]
    for file in notes:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (kept,) = linked.iterdir()
    linked = linked.rename(tmp_path / "elsewhere" / linked.name)
    (ours.parent / linked.name).symlink_to(linked)
    monkeypatch.setattr(journals.Journal, "_tidy", tidy)
    journal = begin(incarnation=90)
    say(journal, "now")
    journal.close(LONG_SECONDS)
    assert not ours.exists()
    assert all(file.exists() for file in (*notes, linked / kept.name))
    assert [*shared.iterdir()] == notes[:1]
    assert all(len([*folder.iterdir()]) == 1 for folder in (first, newest, *others))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("mode", [0o777, 0o2775, 0o755])
def test_users_who_share_a_directory_share_its_upper_folders_but_no_job(
    place: Path, uid: str, mode: int, as_user: Callable[[int], None]
) -> None:
    place.chmod(mode)
    for user, name, its in ((USER, "digits", uid), (USER + 1, "digits", f"{uid}-2"), (USER + 1, "other", f"{uid}-3")):
        as_user(user)
        target = DirectoryTarget(place, segments.HistoryWriter("team", name, its, 0, 1, 1))
        if mode == 0o755 and user != USER:
            whose = f"belongs to user {USER}, and this process's user {user} may not make"
            with pytest.raises(ConfigError, match=whose):
                target.save("1796009007123-00001-0123abcd", Segment("x", bytearray(b"y")))
            continue
        target.save("1796009007123-00001-0123abcd", Segment("x", bytearray(b"y")))
        folder = place / "team" / name / its
        assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, user)
        assert folder.parent.stat().st_mode & 0o7777 == mode | (0o1000 if mode & 0o022 else 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_nothing_is_written_into_a_jobs_folder_of_somebody_else_nor_through_a_link(
    place: Path, uid: str, as_user: Callable[[int], None]
) -> None:
    (place / "team" / "digits" / uid).mkdir(parents=True)
    os.chown(place / "team" / "digits" / uid, USER + 1, GROUP)
    (place / "team" / "digits" / uid).chmod(0o777)
    (place / "linked").symlink_to("team")
    as_user(USER)
    segment = Segment("x", bytearray(b"y"))
    with pytest.raises(ConfigError, match=f"{uid} belongs to user {USER + 1}, not to this process's user {USER}"):
        DirectoryTarget(place, segments.HistoryWriter("team", "digits", uid, 0, 1, 1)).save("a", segment)
    with pytest.raises(NotADirectoryError):
        DirectoryTarget(place, segments.HistoryWriter("linked", "digits", uid, 0, 1, 1)).save("a", segment)


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path, uid: str) -> None:
    writer = segments.HistoryWriter("team", "digits", uid, 0, 1, 1)
    target, segment = DirectoryTarget(tmp_path, writer), Segment("x", bytearray(b"y"))
    for folder in ("team/_jobs", f"{writer.node_folder}/a"):
        (tmp_path / folder).mkdir(parents=True)
        os.mkfifo(tmp_path / folder / "x")
    for write in (lambda: target.mark("x", b"y"), lambda: target.save("a", segment)):
        with pytest.raises(OSError, match="No such device or address"):
            write()


def test_a_file_that_is_cut_at_any_byte_is_read_up_to_there(begin: Begin, read: Read, tmp_path: Path) -> None:
    journal, lines = begin(), [f"line {number} é" for number in range(30)]
    say(journal, *lines)
    journal.close(LONG_SECONDS)
    (file,) = tmp_path.rglob("log-*")
    content = file.read_bytes()
    head = content.index(b"\n") + 1
    for end in random.sample(range(head, len(content)), 60):
        file.write_bytes(content[:end])
        assert texts(read()) == lines[: content[:end].count(b"\n") - 1]


WRITE = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history import segments, journal
from ddpjob_supervisor.history.targets import DirectoryTarget
segments.SEGMENT_BYTES = 4000
journal.SECONDS = 0.05
writer = HistoryWriter("team", "digits", sys.argv[2], 0, 1, 1)
kept = Journal(sys.argv[1], writer, SecretValues({}), 1, lambda: DirectoryTarget(Path(sys.argv[1]), writer))
number = 0
while True:
    kept.hear(1, f"line {number}\\n".encode())
    print(number, flush=True)
    number += 1
    time.sleep(0.0005)
"""


def test_a_writer_that_is_killed_loses_only_the_last_moment(tmp_path: Path, uid: str, read: Read) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITE, tmp_path, uid], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    wait_for("something is written", lambda: [*tmp_path.rglob("log-*")], 30)
    said: list[tuple[float, int]] = []
    for line in process.stdout:
        said.append((time.monotonic(), int(line)))
        if said[-1][0] > said[0][0] + random.uniform(0.5, 1.0):
            break
    process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    process.communicate()
    kept = texts(read())
    assert kept == [f"line {number}" for number in range(len(kept))]
    before = max(number for moment, number in said if moment < killed - patience(0.4) or number == said[0][1])
    assert len(kept) > before


class Hanging(DirectoryTarget):
    """A disk that can be told to hang, or to fail after some bytes."""

    def __init__(self, place: Path, writer: segments.HistoryWriter) -> None:
        super().__init__(place, writer)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.full = False

    def save(self, folder: str, segment: Segment) -> None:
        self.goes_on.wait()
        if self.full:
            torn = segment.content[: len(segment.content) - 3]
            path = self._place / self._writer.node_folder / folder / segment.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(torn)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().save(folder, segment)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: str) -> Hanging:
    monkeypatch.setattr(journals, "SECONDS", 0.01)
    return Hanging(tmp_path, segments.HistoryWriter("team", "digits", uid, 0, 1, 1))


def test_a_disk_that_hangs_keeps_nobody_waiting_and_what_is_lost_is_counted(
    begin: Begin, read: Read, disk: Hanging, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journals, "WAITING_BYTES", 20_000)
    disk.goes_on.clear()
    journal, began = begin(disk=disk), time.monotonic()
    for number in range(1000):
        say(journal, number)
    assert time.monotonic() - began < 1
    journal.close(0.05)
    assert time.monotonic() - began < 2
    assert "could not be written in time" in capfd.readouterr().err
    disk.goes_on.set()
    journal.close(LONG_SECONDS)
    kept = texts(read())
    lost = [int(text[1:].split()[0]) for text in kept if "lines are missing here" in text]
    numbers = [int(text) for text in kept if text.isdecimal()]
    assert numbers == [*range(len(numbers))]
    assert len(numbers) + sum(lost) == 1000
    assert len(lost) == 1


def test_lines_that_are_lost_while_a_disk_is_full_are_counted_together_and_in_their_place(
    begin: Begin, read: Read, disk: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "WAITING_BYTES", 5000)
    monkeypatch.setattr(journals, "SHARE", 0)
    disk.full = True
    journal, rounds = begin(disk=disk), random.randint(3, 6)
    tried = []
    monkeypatch.setattr(journal, "_warn", tried.append)
    for number in range(rounds):
        say(journal, *range(number * 100, number * 100 + 100))
        say(journal, *range(number * 100, number * 100 + 100))
        before = len(tried)
        wait_for("another try", lambda before=before: len(tried) > before + 1, 10)
    disk.full = False
    wait_for("all is saved", lambda: journal._waiting == 0, 10)
    say(journal, "after")
    journal.close(LONG_SECONDS)
    *numbers, missing, after = texts(read())
    assert after == "after"
    assert missing.startswith(f"[{rounds * 200 - len(numbers)} lines are missing here")
    assert all(text.isdecimal() for text in numbers)


def test_a_program_that_prints_much_before_it_saves_loses_nothing(
    begin: Begin, read: Read, disk: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "WAITING_BYTES", 20_000)
    journal = begin(disk=disk, is_early=lambda: True)
    for number in range(500):
        say(journal, number)
        wait_for("less to wait", lambda: journal._waiting < 15_000, 10)
    journal.close(LONG_SECONDS)
    assert texts(read()) == [str(number) for number in range(500)]


def test_short_lines_count_with_what_their_records_take(
    begin: Begin, disk: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "WAITING_BYTES", 20_000)
    disk.goes_on.clear()
    journal = begin(disk=disk)
    for _ in range(100):
        journal.hear(1, b"\n" * 500)
    disk.goes_on.set()
    journal.close(LONG_SECONDS)
    assert sum(journal._series[0]._sizes.values()) < 60_000


def test_a_full_disk_is_said_once_and_nothing_is_torn_or_doubled_when_it_has_room(
    begin: Begin, read: Read, disk: Hanging, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SHARE", 0)
    disk.full = True
    journal = begin(disk=disk)
    tried = []
    monkeypatch.setattr(journal, "_warn", lambda error, warn=journal._warn: (tried.append(error), warn(error)))
    say(journal, *range(10))
    wait_for("a second try", lambda: len(tried) > 1, 10)
    disk.full = False
    say(journal, *range(10, 20))
    journal.close(LONG_SECONDS)
    assert texts(read()) == [str(number) for number in range(20)]
    assert capfd.readouterr().err.count("cannot be written now: No space left on device. Training goes on") == 1


@pytest.mark.parametrize(("size", "free"), [(100 << 30, 1 << 30), (1000 << 20, 50 << 20)])
def test_the_last_room_of_a_volume_is_left_to_checkpoints(
    size: int, free: int, tmp_path: Path, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = SimpleNamespace(f_frsize=4096, f_blocks=size // 4096, f_bavail=free // 4096 - 1)
    monkeypatch.setattr(os, "fstatvfs", lambda _: volume)
    target = DirectoryTarget(tmp_path, HistoryWriter("team", "digits", uid, 0, 1, 1))
    segment = Segment("log-000001-00001-1796009007123.jsonl", bytearray(b"one"))
    folder = "1796009000000-00001-0123abcd"
    full = pytest.raises(OSError, match="MiB of the volume are left to checkpoints")
    with full:
        target.save(folder, segment)
    assert not [*tmp_path.rglob("*.jsonl")]
    volume.f_bavail += 1
    target.save(folder, segment)
    assert segment.saved == len(b"one")
    segment.content += b"two"
    volume.f_bavail -= 1
    with full:
        target.save(folder, segment)
    assert segment.saved == len(b"one")
    result = Segment("result-000001-00001-1796009007123.jsonl", bytearray(b"0.93"))
    target.save(folder, result)
    assert result.saved == len(b"0.93")


@pytest.mark.parametrize("opened", [True, False])
def test_events_that_can_never_be_written_take_no_memory_for_ever(
    begin: Begin,
    disk: Hanging,
    monkeypatch: pytest.MonkeyPatch,
    opened: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(journals, "EVENT_BYTES", 10_000)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2000)
    disk.full = True
    journal = begin(disk=disk)
    if not opened:
        monkeypatch.setattr(journal, "_make", Path("/nothing").stat)
    say(journal, "a line that cannot be written either")
    for step in range(1000):
        journal.note(Event("progress", time.time(), 1, step, {"text": "x" * 100}))
        if step % 100 == 0:
            time.sleep(0.02)
    journal.close(LONG_SECONDS)
    assert sum(len(item.content) for item in journal._series[1].unsaved) <= 12_000


@pytest.mark.parametrize("value", ["../up", "a/b", "", "Upper", "a" * 300, ".", ".."])
def test_a_name_that_is_none_in_kubernetes_becomes_no_path(value: str) -> None:
    for place in range(3):
        names = ["team", "digits", "uid"]
        names[place] = value
        with pytest.raises(Exception, match="is not a name in Kubernetes"):
            segments.HistoryWriter(names[0], names[1], names[2], 0, 1, 1)


def test_each_line_of_a_segment_is_json_and_the_first_says_whose_it_is(
    begin: Begin, tmp_path: Path, uid: str
) -> None:
    journal = begin(node=3, incarnation=2, attempt=5, ranks=4)
    say(journal, 'quote " and \\ and \x1b')
    journal.close(LONG_SECONDS)
    (file,) = tmp_path.rglob("log-*")
    assert file.name.startswith("log-000001-00005-")
    assert file.parent.parent.name == "node-00003"
    head, line = map(json.loads, file.read_text().splitlines())
    known: dict[str, Any] = {"v": 1, "namespace": "team", "name": "digits", "uid": uid}
    assert head == known | {"node": 3, "incarnation": 2, "ranks": 4, "attempt": 5}
    assert line["x"] == 'quote " and \\ and \x1b'
