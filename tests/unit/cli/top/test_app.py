"""`ddpjob top` as it is used: by its keys, on screens of several sizes."""

import argparse
import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.top import app as module
from ddpjob_operator.cli.top.app import TopApp
from ddpjob_operator.client import ClusterError
from ddpjob_operator.view_model import JobDetail, JobKey, Origin
from textual.pilot import Pilot
from textual.widgets import DataTable, Input

from tests.support.waiting import patience
from tests.unit.cli.top.made_up import RUNNING, MadeUp, text_of
from tests.unit.view_model.jobs import condition, job_with, moment

Story = Callable[[Pilot[None], TopApp], Awaitable[None]]
DEADLINE_SECONDS = 30.0


def shown(feed: MadeUp, story: Story, size: tuple[int, int] = (80, 24)) -> None:
    """Lets a story happen on a screen."""

    async def run() -> None:
        app = TopApp([feed], argparse.Namespace(kubeconfig=None, context="here"))
        async with app.run_test(size=size, notifications=True) as pilot:
            await story(pilot, app)

    asyncio.run(run())


async def until(app: TopApp, pilot: Pilot[None], words: str) -> list[str]:
    """The lines of the screen, once it has these words."""
    begun = time.monotonic()
    while words not in "\n".join(lines := text_of(app)):
        assert time.monotonic() - begun < patience(DEADLINE_SECONDS), lines
        await pilot.pause(0.05)
    return lines


def jobs(*names: str, **status: Any) -> MadeUp:
    return MadeUp({name: job_with(RUNNING | status) for name in names})


@pytest.mark.parametrize(
    ("size", "heading", "line"),
    [
        ((80, 24), "NAME    STATE    PROGRESS  ETA  LOSS  RESTARTS", "digits  Running  30%       5m   0.25  0"),
        (
            (200, 50),
            "WHERE  NAME    STATE    READY  PROGRESS  ETA  SAMPLES/S  LOSS  RESTARTS  GOODPUT  AGE",
            "team   digits  Running  2/2    30%       5m   1,234      0.25  0",
        ),
    ],
)
def test_a_screen_has_the_columns_that_fit(size: tuple[int, int], heading: str, line: str) -> None:
    async def story(pilot: Pilot[None], app: TopApp) -> None:
        lines = await until(app, pilot, "digits")
        assert lines[0] == "1 job: 1 Running"
        assert (lines[1].strip().startswith(heading), lines[2].strip().startswith(line)) == (True, True)
        assert lines[-4] == "2 nodes are running"
        assert len(lines) == size[1]
        assert "x Shell" in lines[-1]
        assert "⏎ Job" in lines[-1]
        assert lines[-1].endswith("d Delete ? Help / Filter q Quit")

    shown(jobs("digits"), story, size)


def names(app: TopApp) -> list[str]:
    """The jobs on the screen, from the top."""
    table = app.screen.query_one(DataTable)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


def test_words_choose_the_jobs_that_are_shown() -> None:
    feed = MadeUp(
        {
            "digits": job_with(RUNNING),
            "words": job_with(RUNNING | {"state": "Failed", "message": "Rank 3 failed: OutOfMemory"}),
        }
    )

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "2 jobs")
        await pilot.press("slash", *"MEMORY", "space", *"words")
        await until(app, pilot, "1 shown")
        assert names(app) == ["words"]
        await pilot.press("enter")
        await pilot.press("down")
        assert names(app) == ["words"], "keys act on jobs again, and the words stay"
        await pilot.press("slash", "x")
        await until(app, pilot, "No job matches")
        await pilot.press("escape")
        await pilot.pause()
        assert sorted(names(app)) == ["digits", "words"]

    shown(feed, story)


LOSSES = {"a": 0.5, "b": 0.25, "c": None, "d": 10.0}


@pytest.mark.parametrize(
    ("keys", "heading", "order"),
    [
        ("", "NAME ", "abcd"),
        (">", "NAME▲", "abcd"),
        ("> I", "NAME▼", "dcba"),
        ("> > > > >", "LOSS▲", "badc"),
        ("> > > > > I", "LOSS▼", "dabc"),
        ("> <", "NAME ", "abcd"),
        ("> > >", "PROGRESS▼", "abcd"),
    ],
)
def test_a_column_sorts_and_what_is_unknown_comes_last(keys: str, heading: str, order: str) -> None:
    feed = MadeUp(
        {
            name: job_with(RUNNING | {"progress": RUNNING["progress"] | {"loss": loss}})
            for name, loss in LOSSES.items()
        }
    )
    typed = {">": "greater_than_sign", "<": "less_than_sign"}

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "4 jobs")
        await pilot.press(*(typed.get(key, key) for key in keys.split()))
        await until(app, pilot, heading)
        assert "".join(names(app)) == order

    shown(feed, story)


def test_a_long_name_leaves_room_for_the_other_columns() -> None:
    async def story(pilot: Pilot[None], app: TopApp) -> None:
        lines = await until(app, pilot, "Running")
        assert "RESTARTS  AGE" in lines[1]
        assert "resnet50-w…es-lr-0.3" in lines[2]

    shown(jobs("resnet50-with-the-longest-of-schedules-lr-0.3"), story)


def test_all_keys_are_told_by_one_key() -> None:
    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        await pilot.press("question_mark")
        lines = "\n".join(await until(app, pilot, "this help"))
        for key, told in {"/": "only jobs", "w": "the next of the jobs", "c": "ddpjob cancel NAME"}.items():
            assert f"{key:<10}{told}" in lines
        assert "on this machine: ddpjob rm NAME" in lines
        await pilot.press("d")
        await until(app, pilot, "1 job")
        assert isinstance(app.screen, module.JobsScreen), "the key only leaves the help"
        await pilot.press("enter")
        await until(app, pilot, "1 Job")
        await pilot.press("question_mark")
        await until(app, pilot, "1 2 3     the job in words")

    shown(jobs("digits"), story, (100, 40))


def test_what_the_watch_tells_is_shown_without_a_key() -> None:
    feed = jobs("digits")

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        feed.put("other", state="Queued", message="waits in team-a")
        await until(app, pilot, "waits in team-a")
        feed.put("digits", state="Stalled", message="no step for 5m")
        await until(app, pilot, "2 jobs: 1 Stalled and 1 Queued")
        del feed.jobs["other"]
        feed.problem = "the cluster does not answer"
        feed.changed()
        await until(app, pilot, "1 job: 1 Stalled. 1 to look at (w). the cluster does not answer")

    shown(feed, story)
    assert feed.stopped


def test_the_chosen_job_stays_chosen_when_others_come() -> None:
    feed = jobs("b", "c")

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "2 jobs")
        await pilot.press("down")
        feed.put("a")
        await until(app, pilot, "3 jobs")
        await pilot.pause()
        assert app.screen.query_one(DataTable).cursor_row == 2

    shown(feed, story)


HOSTILE = "[red]x[/red][/][@click=app.quit]q[/]\x1b[2J\u202e$(id)"


def test_names_and_messages_are_shown_as_they_are() -> None:
    inert = r"[red]x[/red][/][@click=app.quit]q[/]\x1b[2J\u202e$(id)"
    failed = {"time": moment(-9), "attempt": 1, "node": 1, "pod": "x", "cause": "Application", "message": HOSTILE}
    feed = jobs(HOSTILE.replace("\x1b", "").replace("\u202e", ""), message=HOSTILE, incidents=[failed])
    feed.page = {"ranks": [{"rank": 0, "node": 0, "activity": HOSTILE}]}

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        assert inert in "\n".join(await until(app, pilot, "1 job"))
        await pilot.press("enter")
        assert inert in "\n".join(await until(app, pilot, "Message:"))
        await pilot.press("2")
        assert inert.lower() in "\n".join(await until(app, pilot, "RANK"))
        await pilot.press("3")
        assert inert in "\n".join(await until(app, pilot, "attempt 1"))

    shown(feed, story, (200, 50))


def test_one_key_leads_to_the_job_that_has_come_into_trouble_last() -> None:
    feed = jobs("a", "b", "c", "d")

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "4 jobs: 4 Running")
        assert "to look at" not in "\n".join(text_of(app))
        await pilot.press("w")
        feed.put("b", progress=RUNNING["progress"] | {"loss": "NaN"})
        await until(app, pilot, "1 to look at (w)")
        feed.put("d", state="Restarting")
        feed.put("a", restarts=1)
        await until(app, pilot, "3 to look at (w)")
        seen = []
        for _ in range(4):
            await pilot.press("w")
            assert isinstance(app.screen, module.JobsScreen)
            chosen = app.screen.chosen()
            seen.append(chosen.name if chosen else "")
        assert (sorted(seen[:2]), seen[2], seen[3]) == (["a", "d"], "b", seen[0])
        feed.put("c", state="Stalled")
        await until(app, pilot, "4 to look at (w)")
        await pilot.press("w")
        assert isinstance(app.screen, module.JobsScreen)
        assert app.screen.chosen() == feed.key("c")
        feed.put("b")
        await until(app, pilot, "3 to look at (w)")

    shown(feed, story, (100, 24))


def test_a_job_is_shown_in_full_by_one_key() -> None:
    status = {
        "conditions": [condition("Running", seconds=-50)],
        "progress": RUNNING["progress"] | {"since": moment(-20)},
    }
    feed = jobs("digits", **status)
    feed.page = {"ranks": [{"rank": n, "node": n, "step": 7, "seconds": {"forward": n + 1}} for n in (0, 1)]}

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        await pilot.press("enter")
        lines = await until(app, pilot, "└─ first step")
        assert any(line.startswith("State:        Running") for line in lines)
        assert [line[:25].rstrip() for line in lines if line.startswith(("├", "└"))] == [
            "├─ queue            10 s",
            "├─ code             40 s",
            "└─ first step       30 s",
        ]
        await pilot.press("2")
        lines = await until(app, pilot, "Slowest")
        assert lines[0].rstrip() == "digits  Running", "each tab says whose it is"
        assert "Slowest: rank 1 on node 1: its own part takes 2 s" in lines
        await pilot.press("3")
        await until(app, pilot, "No incidents.")
        await pilot.press("escape")
        await until(app, pilot, "1 job")

    shown(feed, story)


def test_a_job_that_is_gone_is_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = jobs("digits")
    monkeypatch.setattr(module, "DETAIL_SECONDS", 0.1)

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        await pilot.press("enter")
        await until(app, pilot, "State:")
        feed.jobs.clear()
        await until(app, pilot, "The job is gone.")

    shown(feed, story)


def test_a_job_that_is_slow_to_read_holds_up_neither_keys_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, asked, ended = jobs("digits"), list[str](), threading.Event()
    detail = feed.detail

    def slow(key: JobKey, now: datetime) -> JobDetail | None:
        asked.append(key.name)
        ended.wait(20)
        return detail(key, now)

    monkeypatch.setattr(feed, "detail", slow)
    monkeypatch.setattr(module, "DETAIL_SECONDS", 0.01)
    monkeypatch.setattr(module, "carried_out", lambda _: (True, "digits: suspended"))

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        await pilot.press("enter")
        await until(app, pilot, "Reading")
        await pilot.pause(0.5)
        await pilot.press("s")
        await until(app, pilot, "digits: suspended")

    began = time.monotonic()
    try:
        shown(feed, story)
        assert (asked, time.monotonic() - began < 15) == (["digits"], True)
    finally:
        ended.set()


def test_jobs_that_cannot_be_told_apart_are_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = jobs("digits")
    rows = feed.rows
    monkeypatch.setattr(feed, "rows", lambda now: [*rows(now), *rows(now)])

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "1 job: 1 Running")

    shown(feed, story)


def test_jobs_of_one_uid_and_two_names_are_two_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = jobs("a", "b")
    monkeypatch.setattr(feed, "key", lambda name: JobKey(Origin.CLUSTER, "team", name, "copied"))

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "2 jobs: 2 Running")
        await pilot.press("down")
        assert isinstance(app.screen, module.JobsScreen)
        assert app.screen.chosen() == feed.key("b")

    shown(feed, story)


KEYS: dict[str, tuple[str, ...]] = {
    "s": ("suspend", "digits"),
    "d y y n": (),
    "d Y n": (),
    "d y escape": (),
    "d y Y": ("delete", "digits", "--wait=false"),
    "c y Y": ("cancel", "digits"),
    "n 4 enter": ("scale", "digits", "--nodes", "4"),
    "n escape": (),
    "n enter": (),
    "enter d y Y escape": ("delete", "digits", "--wait=false"),
}


def test_keys_run_the_command_and_what_destroys_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[tuple[str, ...]]()

    def carried_out(words: Sequence[str]) -> tuple[bool, str]:
        called.append((*words,))
        return True, f"digits: done [b]{len(called)}[/b]"

    monkeypatch.setattr(module, "carried_out", carried_out)

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        for keys, command in KEYS.items():
            before = len(called)
            for key in keys.split():
                await pilot.press(key)
                await pilot.pause()
            if command:
                await until(app, pilot, f"digits: done [b]{before + 1}[/b]")
            wanted = [(*command, "-n", "team", "--context", "here")] if command else []
            assert called[before:] == wanted, keys

    shown(jobs("digits"), story)


def test_only_keys_that_can_work_for_the_job_under_the_cursor_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[Sequence[str]]()
    monkeypatch.setattr(module, "carried_out", lambda words: (not called.append(words), "done"))
    feed = jobs("a", "b")
    feed.put("b", state="Suspended")

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "s Suspend")
        assert "r Resume" not in text_of(app)[-1]
        await pilot.press("r")
        await until(app, pilot, "Resume: not possible for a")
        await pilot.press("down")
        assert "s Suspend" not in (await until(app, pilot, "r Resume"))[-1]
        assert called == []
        await pilot.press("r")
        await until(app, pilot, "done")
        assert called[0][:2] == ["resume", "b"]
        await pilot.press("enter")
        await until(app, pilot, "State:")
        assert "s Suspend" not in (await until(app, pilot, "r Resume"))[-1]

    shown(feed, story)


def test_a_shell_gets_the_terminal_in_the_rank_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()
    monkeypatch.setattr(module, "watched", called.extend)
    monkeypatch.setattr(TopApp, "suspend", lambda _: nullcontext())

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        await pilot.press("x")
        await until(app, pilot, "In the container of which rank?")
        await pilot.press("backspace", "3", "enter")
        await until(app, pilot, "1 job")
        await pilot.pause()
        assert called == ["debug", "digits", "--rank", "3", "-n", "team", "--context", "here"]

    shown(jobs("digits"), story)


def test_a_shell_is_first_thought_to_be_in_the_rank_under_the_cursor() -> None:
    feed = jobs("digits")
    feed.page = {"ranks": [{"rank": n, "node": n} for n in range(3)]}

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        await pilot.press("enter")
        await until(app, pilot, "State:")
        for keys, rank in ((("2", "down", "down"), "2"), (("1",), "0")):
            await pilot.press(*keys, "x")
            await until(app, pilot, "In the container of which rank?")
            assert app.screen.query_one(Input).value == rank
            await pilot.press("escape")

    shown(feed, story)


def test_what_is_not_possible_is_not_asked() -> None:
    feed = jobs("digits")
    feed.origin = Origin.HERE

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "digits")
        for key, label in (("n", "Size"), ("x", "Shell"), ("c", "Cancel")):
            await pilot.press(key)
            await until(app, pilot, f"{label}: not possible for digits:")
        await until(app, pilot, "this machine")

    shown(feed, story)


def test_a_thousand_jobs_and_half_a_thousand_nodes_can_be_scrolled() -> None:
    feed = MadeUp({f"job-{n:03}": job_with(RUNNING | {"nodes": 512}) for n in range(1000)})

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "1000 jobs")
        await pilot.press("end")
        await until(app, pilot, "job-999")
        await pilot.press("enter")
        await until(app, pilot, "World:")
        await pilot.press("2", "tab", "end")
        table = app.screen.query_one(DataTable)
        table.focus()
        await pilot.press("end")
        await until(app, pilot, "511")

    shown(feed, story)


def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        lines = await until(app, pilot, "digits")
        strips = app.screen._compositor.render_strips()
        colours = {
            segment.style.color for strip in strips for segment in strip if segment.style and segment.style.color
        }
        assert all(len({*colour.get_truecolor()}) == 1 for colour in colours), "only shades of grey"
        assert "Running" in lines[2]

    shown(jobs("digits"), story)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "job.json"), "Permission denied"),
        (ClusterError("the cluster does not answer\x1b"), r"the cluster does not answer\x1b"),
        (BadInputError("job.json is damaged"), "job.json is damaged"),
    ],
)
def test_what_cannot_be_read_is_said_in_its_place(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = jobs("digits")

    def fails(*_: object) -> Any:
        raise error

    monkeypatch.setattr(feed, "detail", fails)

    async def story(pilot: Pilot[None], app: TopApp) -> None:
        await until(app, pilot, "1 job")
        await pilot.press("enter")
        await until(app, pilot, words)
        await pilot.press("escape")
        if isinstance(error, BadInputError):
            monkeypatch.setattr(feed, "rows", fails)
            await until(app, pilot, words)

    shown(feed, story)
