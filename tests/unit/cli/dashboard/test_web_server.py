"""What the server of `ddpjob dashboard` answers, by real connections."""

import asyncio
import base64
import json
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from ddpjob_operator.cli.dashboard import board as board_module
from ddpjob_operator.cli.dashboard import web_server
from ddpjob_operator.cli.dashboard.guard import Guard
from ddpjob_operator.cli.dashboard.web_server import difference
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.dashboard.served import ARGUMENTS, Served, served
from tests.unit.cli.top.made_up import RUNNING, MadeUp
from tests.unit.view_model.jobs import job_with, moment

DEADLINE_SECONDS = 30.0
DIGITS = "cluster:uid-of-digits"
SECRET = "correct-horse-battery"
OF_A_JOB = {"row", "lines", "ranks", "slowest", "start", "axis", "curves", "clock", "noCurves", "acts"}


def jobs(*names: str, **status: Any) -> MadeUp:
    return MadeUp({name: job_with(RUNNING | status) for name in names})


def tell(feed: MadeUp, story: Callable[[Served], Awaitable[None]]) -> None:
    """Lets a story happen between a server and its reader."""

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), served(feed) as server:
            await story(server)

    asyncio.run(run())


def test_all_that_is_asked_without_the_token_is_refused_and_each_answer_has_the_policy() -> None:
    async def story(server: Served) -> None:
        paths = {
            "/": 200,
            "/app.js": 200,
            "/nowhere": 404,
            "/../board.py": 404,
            "/vendor/%2e%2e/%2e%2e/board.py": 404,
        }
        data = dict.fromkeys(("watch", "logs", "yaml", "events", "act"), 403)
        async with aiohttp.ClientSession() as stranger:
            for path, status in {**paths, **{f"/api/{name}": code for name, code in data.items()}}.items():
                async with stranger.get(server.url(path)) as answer:
                    assert (path, answer.status) == (path, status)
                    policy = answer.headers["Content-Security-Policy"]
                    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
                    assert "unsafe" not in policy
                    assert answer.headers["Cache-Control"] == "no-store"

    tell(jobs("digits"), story)


def test_another_name_of_the_server_and_another_origin_are_refused() -> None:
    async def story(server: Served) -> None:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            async with server.session.get(server.url("/api/watch"), headers=headers) as answer:
                assert answer.status == 403
                assert "Access-Control-Allow-Origin" not in answer.headers

    tell(jobs("digits"), story)


def test_the_only_inline_code_of_the_page_is_named_by_its_hash() -> None:
    page = (web_server.WEB / "index.html").read_bytes()
    (code,) = re.findall(rb"<script type=\"importmap\">(.+)</script>", page)
    hashed = base64.b64encode(sha256(code).digest()).decode()
    assert f"'sha256-{hashed}'" in web_server.headers_of(page)["Content-Security-Policy"]


def test_a_stream_tells_all_jobs_and_then_what_changes() -> None:
    feed = jobs("digits", "other")

    async def story(server: Served) -> None:
        events = aiter(server.events("/api/watch"))
        first = await anext(events)
        assert first["put"].keys() == {"problems", DIGITS, "cluster:uid-of-other"}
        assert first["put"][DIGITS]["state"] == "Running"
        feed.put("digits", state="Queued", message="waits in team-a")
        changed = await anext(events)
        assert (changed["put"].keys(), changed["gone"]) == ({DIGITS}, [])
        assert changed["put"][DIGITS]["why"] == "waits in team-a"
        del feed.jobs["other"]
        feed.problem = "the cluster does not answer"
        feed.changed()
        assert await anext(events) == {"put": {"problems": [feed.problem]}, "gone": ["cluster:uid-of-other"]}

    tell(feed, story)
    assert feed.stopped


VALUES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@given(VALUES, VALUES)
def test_who_applies_a_difference_has_the_new_state(before: dict[str, int], after: dict[str, int]) -> None:
    change = difference(before, after) or {"put": {}, "gone": []}
    assert {name: value for name, value in before.items() if name not in change["gone"]} | change["put"] == after
    assert bool(difference(before, after)) == (before != after)
    assert difference(None, after) == {"put": after, "gone": []}


def test_one_stream_tells_several_jobs_in_full_and_which_of_them_are_gone() -> None:
    async def story(server: Served) -> None:
        async with server.session.get(
            server.url("/api/watch"), params=[("id", DIGITS), ("id", "here:/etc/passwd")]
        ) as answer:
            line = await answer.content.readline()
        put = json.loads(line.removeprefix(b"data: "))["put"]
        assert put.keys() == {*(f"{DIGITS} {part}" for part in OF_A_JOB), "here:/etc/passwd problem"}
        assert put["here:/etc/passwd problem"] == "The job is gone."
        assert [act["name"] for act in put[f"{DIGITS} acts"]] == ["suspend", "scale", "cancel", "delete"]

    tell(jobs("digits"), story)


def test_no_secret_of_a_job_is_shown() -> None:
    feed = jobs()
    container = {"name": "trainer", "image": "any", "env": [{"name": "DB_PASSWORD", "value": SECRET}]}
    failed = {"time": moment(-9), "attempt": 1, "node": 1, "pod": "x", "cause": "Application", "message": SECRET}
    status = RUNNING | {"message": f"no login with {SECRET}", "incidents": [failed]}
    feed.jobs["digits"] = job_with(status, template={"spec": {"containers": [container]}})

    async def story(server: Served) -> None:
        async with server.session.get(server.url("/api/watch"), params={"id": DIGITS}) as answer:
            assert SECRET.encode() not in await answer.content.readline()
        text = (await server.get("/api/yaml", id=DIGITS))["text"]
        assert SECRET not in text
        assert "value: •••" in text
        (event,) = (await server.get("/api/events", id=DIGITS))["events"]
        assert event["message"] == "created pods of digits"

    tell(feed, story)


def test_an_action_is_the_command_that_top_runs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[tuple[str, ...]]()

    def carried_out(words: Sequence[str]) -> tuple[bool, str]:
        called.append((*words,))
        return False, f"no: TOKEN={SECRET}\x1b[2J"

    monkeypatch.setattr(board_module, "carried_out", carried_out)

    async def story(server: Served) -> None:
        assert await server.act(DIGITS, "scale", "4") == (200, {"succeeded": False, "said": "no: TOKEN=•••"})
        assert called == [("scale", "digits", "--nodes", "4", "-n", "team", "--context", "here")]
        for wrong in (
            (DIGITS, "logs", ""),
            (DIGITS, "scale", ""),
            (DIGITS, "scale", "4 --namespace=kube-system"),
            (DIGITS, "scale", "\uff14"),
            ("cluster:another", "delete", ""),
        ):
            status, answer = await server.act(*wrong)
            assert status == 422, wrong
            assert answer["problem"]
        for body in (b"", b"[1]", b"[" * 9999, b"\xff"):
            async with server.session.post(server.url("/api/act"), data=body) as answer:
                assert answer.status == 422
        assert len(called) == 1

    tell(jobs("digits"), story)


def test_a_log_is_what_the_command_prints_as_it_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, time; print(sys.argv[1:], flush=True); time.sleep(1);"
        rf"print('\x1b[31m<b>red</b>\x1b[0m\x07 token={SECRET}', 'x' * 9999, end='')"
    )
    monkeypatch.setattr(web_server, "OURSELVES", (sys.executable, "-c", program))

    async def story(server: Served) -> None:
        events = [event async for event in server.events("/api/logs", id=DIGITS, attempt="2")]
        first = ["logs", "digits", "--follow", "--tail", "2000", "--attempt", "2", "-n", "team", "--context", "here"]
        assert events[0] == {"lines": [str(first)]}
        (line,) = [line for event in events[1:-1] for line in event["lines"]]
        assert line.startswith(r"<b>red</b>\x07 token=••• xxx")
        assert len(line) <= web_server.LONGEST_LINE
        assert events[-1] == {"ended": 0}
        assert "whole number" in (await server.get("/api/logs", status=422, id=DIGITS, attempt="--raw"))["problem"]

    tell(jobs("digits"), story)


def test_the_program_of_a_log_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    ended = tmp_path / "pid"
    program = (
        f"import os, time, pathlib; pathlib.Path({str(ended)!r}).write_text(str(os.getpid())); print(1, flush=True)"
    )
    monkeypatch.setattr(web_server, "OURSELVES", (sys.executable, "-c", f"{program}; time.sleep(600)"))

    async def story(server: Served) -> None:
        events = aiter(server.events("/api/logs", id=DIGITS))
        assert await anext(events) == {"lines": ["1"]}
        await events.aclose()  # type: ignore[attr-defined]
        stat = f"/proc/{ended.read_text()}/stat"
        while True:
            try:
                with open(stat) as file:  # noqa: ASYNC230, PTH123  It is no file of a disk.
                    if file.read().split()[2] == "Z":
                        return
            except FileNotFoundError:
                return
            await asyncio.sleep(0.05)

    tell(jobs("digits"), story)


def test_a_directory_that_has_gone_is_a_problem_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = jobs("digits")

    def rows(_: Any) -> Any:
        raise board_module.BadInputError("--run-dir x: there is no such directory")

    monkeypatch.setattr(feed, "rows", rows)

    async def story(server: Served) -> None:
        first = await anext(aiter(server.events("/api/watch")))
        assert first["put"] == {"problems": ["--run-dir x: there is no such directory"]}

    tell(feed, story)


@pytest.mark.parametrize(
    ("data", "divided"),
    [
        (b"a\nb\nc", [["a", "b"], ["c"]]),
        (b"a\n", [["a"]]),
        (b"", []),
        (b"x" * 5000, [["x" * 5000]]),
        (b"\n" * 501, [[""] * 500, [""]]),
        (b"\xff\n\xfe", [["\ufffd"], ["\ufffd"]]),
    ],
)
def test_a_log_comes_in_pieces_of_whole_lines(data: bytes, divided: list[list[str]]) -> None:
    async def read() -> list[list[str]]:
        output = asyncio.StreamReader()
        output.feed_data(data)
        output.feed_eof()
        return [lines async for lines in web_server.pieces(output)]

    assert asyncio.run(read()) == divided


@pytest.mark.parametrize(("version", "looks"), [(7, 3), (8, 1)])
def test_who_shows_jobs_looks_again_when_one_has_changed_or_time_is_up(
    version: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "SOON_SECONDS", 0.01)
    waits = web_server._until_worth_a_look(SimpleNamespace(version=version), 7, 0.025)  # type: ignore[arg-type]
    assert asyncio.run(waits) == pytest.approx(0.01 * looks)


def test_a_stream_without_news_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("SOON", 0.01), ("JOBS", 0.01), ("ALIVE", 0.03)):
        monkeypatch.setattr(web_server, f"{name}_SECONDS", seconds)

    async def story(server: Served) -> None:
        async with server.session.get(server.url("/api/watch")) as answer:
            first = await answer.content.readuntil(b"\n\n")
            assert first.startswith(b'data: {"put":{"problems":[]')
            assert await answer.content.readuntil(b"\n\n") == b":\n\n"

    tell(jobs("digits"), story)


def test_a_stream_shows_only_so_many_jobs_in_full() -> None:
    async def story(server: Served) -> None:
        asked = [("id", f"here:{number}") for number in range(17)]
        async with server.session.get(server.url("/api/watch"), params=asked) as answer:
            line = await answer.content.readline()
        assert len(json.loads(line.removeprefix(b"data: "))["put"]) == 16

    tell(jobs(), story)


def test_events_are_told_the_newest_first_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = jobs("digits")
    at = {"lastTimestamp": moment(-60), "type": "Normal", "message": "TOKEN=hunter2\n"}
    events = [{**at, "reason": str(number), "count": number} for number in range(1001)]
    monkeypatch.setattr(feed, "events", lambda _: [*events, {"lastTimestamp": moment(-9), "message": None}])

    async def story(server: Served) -> None:
        first, second, *others = (await server.get("/api/events", id=DIGITS))["events"]
        assert first == {"type": "", "reason": "", "message": "", "time": moment(-9), "count": None}
        said = {"type": "Normal", "reason": "1000", "message": "TOKEN=•••", "time": moment(-60), "count": 1000}
        assert second == said
        assert [event["reason"] for event in others] == [str(number) for number in range(999, 1, -1)]

    tell(feed, story)


def test_until_ctrl_c_the_pages_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, ran = jobs("digits"), list[Any]()
    monkeypatch.setattr(web_server.web, "run_app", lambda app, **given: ran.append((app[web_server.BOARD], given)))
    board, listening = board_module.Board([feed], ARGUMENTS), socket.socket()
    web_server.serve(board, Guard(8000, "the-token"), listening)
    listening.close()
    quiet = {"print": None, "access_log": None}
    assert ran == [(board, {"sock": listening, "shutdown_timeout": 1.0, "handler_cancellation": True, **quiet})]
