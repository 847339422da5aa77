"""Each screen of `ddpjob top` on a small and on a large terminal, as somebody sees it."""

import argparse
import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from ddpjob_operator.cli.top import app as module
from ddpjob_operator.cli.top.app import TopApp
from ddpjob_operator.view_model import JobRow, collected, job_row
from textual.pilot import Pilot

from tests.unit.cli.top.made_up import RUNNING, MadeUp, text_of
from tests.unit.cli.top.test_app import until
from tests.unit.view_model.jobs import NOW, condition, job_with, moment

SCREENS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("All jobs", (), "8 nodes are running"),
    ("Only what failed", ("slash", *"failed"), "1 shown"),
    ("By another column", ("escape", "greater_than_sign"), "vit-huge"),  # Not among what failed.
    ("The keys", ("question_mark",), "this help"),
    ("A job", ("escape", "less_than_sign", "home", "enter"), "first step"),
    ("Its ranks", ("2",), "Slowest"),
    ("Its incidents and curves", ("3",), "accuracy"),
    ("Asked once", ("d",), "Delete llama-8b-finetune"),
    ("Asked twice", ("y",), "Really?"),
)
"""What each screen shows, the keys that lead to it from the one before, and words on it."""


class Stopped(datetime):
    """A clock that has stopped."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW.astimezone(tz)


class Night(MadeUp):
    """A night's jobs: one trains and was interrupted twice, one has failed, one hangs, one waits."""

    AGES: ClassVar = {
        "llama-8b-finetune": 5,
        "resnet50-imagenet-with-a-long-name-lr-0.3": 30,
        "vit-huge": 7,
        "clip": 11,
    }

    def __init__(self) -> None:
        out_of_memory = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB"
        failed = {"cause": "Application", "attempt": 1, "pod": "x", "step": 1500}
        incidents = [
            failed | {"time": moment(-4000), "node": 1, "message": "ConnectionError: no answer", "attempt": 2},
            failed | {"time": moment(-9000), "node": 3, "message": out_of_memory},
        ]
        known = RUNNING["progress"] | {"percent": 41.0, "since": moment(-3000), "totalSteps": 8500, "etaSeconds": 300}
        trains = RUNNING | {"nodes": 8, "startTime": moment(-18000), "display": {"progress": "41%", "eta": "5m"}}
        trains |= {"message": "8 nodes are running", "progress": known, "restarts": 2, "incidents": incidents}
        trains |= {"attempt": 1, "conditions": [condition("Running", seconds=-3100)]}
        why = f"Rank 1 (node 0) failed: Application: {out_of_memory}; no restarts left (maxRestarts: 6)"
        ended = {"incidents": [failed | {"time": moment(-1200), "node": 0, "rank": 1, "message": out_of_memory}]}
        ended |= {"state": "Failed", "message": why, "conditions": [condition("Failed")], "restarts": 6}
        stands = {"state": "Stalled", "message": "no step for 12m; all others wait for rank 7 on node 0"}
        waits = {"state": "Queued", "message": "waits in team-a for 64 GPUs: 40 are free", "display": {}}
        states = (trains, RUNNING | ended | {"completionTime": moment(-1200)}, RUNNING | stands, RUNNING | waits)
        super().__init__({name: job_with(state) for name, state in zip(self.AGES, states, strict=True)})
        ranks = [{"rank": n, "node": n, "step": 7, "seconds": {"forward": 0.1 + n / 10}} for n in range(8)]
        self.page = {"phase": "Running", "since": moment(-3000), "ranks": ranks}
        steps = ({"step": n, "loss": 3 / n, "metrics": {"accuracy": 1 - 1 / n}} for n in range(1, 60))
        told = ({"time": moment(-90 + one["step"]), "event": "progress", "attempt": 1, **one} for one in steps)
        self.recorded = collected([{"time": moment(-90), "event": "started", "attempt": 1, "step": 0}, *told])

    def rows(self, now: datetime) -> list[JobRow]:
        made = {name: NOW - timedelta(hours=hours) for name, hours in self.AGES.items()}
        return [job_row(job, self.key(name), now, made[name]) for name, job in self.jobs.items()]


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_each_screen_looks_as_it_did(
    size: tuple[int, int], golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "datetime", Stopped)
    seen = list[str]()

    async def look(pilot: Pilot[None], app: TopApp) -> None:
        for name, keys, words in SCREENS:
            await pilot.press(*keys)
            lines, before = await until(app, pilot, words), list[str]()
            while lines != before:  # What comes later, such as scrollbars.
                await pilot.pause(0.5)
                before, lines = lines, text_of(app)
            seen.append("\n".join((f"{name} {'=' * (size[0] - len(name) - 1)}", *lines)))

    async def run() -> None:
        app = TopApp([Night()], argparse.Namespace(kubeconfig=None, context="here"))
        app.animation_level = "none"
        async with app.run_test(size=size) as pilot:
            await look(pilot, app)

    asyncio.run(run())
    golden(f"top-{size[0]}x{size[1]}.txt", "\n\n".join(seen) + "\n")
