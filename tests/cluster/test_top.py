"""`ddpjob top` against a real API server; the test says what an operator would."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from ddpjob_operator.cli.top.feeds import JobsThere
from ddpjob_operator.client import Jobs, connect

from tests.plant import Plant
from tests.support.jobs import Team, a_job
from tests.support.waiting import patience, wait_for

DDPJOB = Path(sys.executable).parent / "ddpjob"


def test_jobs_are_shown_as_soon_as_they_change_and_go_when_they_are_deleted(api: Plant, tmp_path: Path) -> None:
    team = Team(api, api.new_namespace())
    feed = JobsThere(Jobs(connect(api.kubeconfig, namespace=team.namespace)), everywhere=False)
    changes = list[datetime]()
    feed.follow(lambda: changes.append(datetime.now(UTC)))

    def states() -> dict[str, str]:
        return {row.name: row.state for row in feed.rows(datetime.now(UTC))}

    try:
        wait_for("the first list", lambda: changes)
        assert (states(), feed.problem) == ({}, "")
        team.apply(a_job("a"))
        wait_for("a new job", lambda: states() == {"a": "Pending"})
        team.say("a", state="Queued", message="waits in team-a")
        wait_for("its change", lambda: states() == {"a": "Queued"})
        (row,) = feed.rows(datetime.now(UTC))
        detail = feed.detail(row.key, datetime.now(UTC))
        assert detail is not None
        assert (row.why, detail.lines["Message"]) == ("waits in team-a", "waits in team-a")
        once = subprocess.run(
            [DDPJOB, "top", "--once", "--cluster", "--kubeconfig", api.kubeconfig, "-n", team.namespace],
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=True,
            cwd=tmp_path,
        )
        head, _, line = once.stdout.splitlines()
        assert (head, line.split()[1:3], line.endswith("waits in team-a")) == (
            "1 job: 1 Queued",
            ["a", "Queued"],
            True,
        )
        team.delete("ddpjobs", "a")
        wait_for("its end", lambda: states() == {})
    finally:
        feed.stop()
