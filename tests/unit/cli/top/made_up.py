"""A source of jobs that is made up, and the text of a screen."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.top.app import TopApp
from ddpjob_operator.view_model import Around, JobDetail, JobKey, JobRow, Origin, Records, job_detail, job_row

from tests.unit.view_model.jobs import NOW, job_with, moment

RUNNING: dict[str, Any] = {
    "state": "Running",
    "message": "2 nodes are running",
    "attempt": 1,
    "nodes": 2,
    "procsPerNode": 1,
    "startTime": moment(-90),
    "display": {"ready": "2/2", "progress": "30%", "eta": "5m"},
    "progress": {"attempt": 1, "step": 7, "loss": 0.25, "samplesPerSecond": 1234.0, "lastStepTime": moment(-1)},
}


@dataclass
class MadeUp:
    """Jobs on a cluster, by name."""

    jobs: dict[str, DDPJob]
    page: Any = None
    recorded: Records = field(default_factory=Records)
    no_curves: str = ""
    origin: Origin = Origin.CLUSTER
    problem: str = ""
    stopped: bool = False
    changed: Callable[[], None] = field(default=lambda: None)

    def follow(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def fetch(self) -> None:
        """They are known already."""

    def rows(self, now: datetime) -> list[JobRow]:
        return [job_row(job, self.key(name), now, NOW) for name, job in self.jobs.items()]

    def detail(self, key: JobKey, now: datetime) -> JobDetail | None:
        job = self.jobs.get(key.name)
        around = Around(NOW - timedelta(seconds=100))
        if job is None:
            return None
        found = job_detail(job, key, min(now, NOW), around, page=self.page, recorded=self.recorded)
        return replace(found, no_curves=self.no_curves)

    def job(self, key: JobKey) -> DDPJob | None:
        return self.jobs.get(key.name)

    def events(self, key: JobKey) -> list[Any]:
        return [
            {
                "type": "Normal",
                "reason": "Created",
                "message": f"created pods of {key.name}",
                "lastTimestamp": moment(-60),
                "count": 2,
            }
        ]

    def stop(self) -> None:
        self.stopped = True

    def key(self, name: str) -> JobKey:
        return JobKey(self.origin, "team", name, f"uid-of-{name}")

    def put(self, name: str, **status: Any) -> None:
        self.jobs[name] = job_with(RUNNING | status)
        self.changed()


def text_of(app: TopApp) -> list[str]:
    """The lines of a screen."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]
