"""A rank that slows down all others: what the supervisor of a real gang reports, and the alert that follows."""

import re
import urllib.request
from pathlib import Path

import pytest

from tests.plant.prometheus import of_debian, start_prometheus
from tests.support.alerts import hastened
from tests.training.gang import a_gang

SLOWDOWN = re.compile(r'ddpjob_trainer_straggler_slowdown\{node="0",rank="(\d)"\} ([0-9.]+)')
NAMES = {"namespace": "team", "pod": "digits-0-abcde", "job_name": "digits"}


@pytest.mark.full("ranks are compared over 30 seconds; tests/unit/supervisor has the comparison")
def test_a_slow_rank_is_reported_and_alerts_until_it_is_as_fast_as_the_others(tmp_path: Path) -> None:
    with start_prometheus(of_debian(), hastened({}, 8)) as monitoring, a_gang(tmp_path, 1, 3) as gang:
        gang.start("-m", "ddpjob_trainer", "--workload", "tests.training.tasks:Hampered", "--epochs", "10000")
        page = f"{gang.address(0)}:{gang.ports[2]}"
        monitoring.scrape("supervisors", {page: NAMES})

        def slow() -> list[tuple[str, str]]:
            with urllib.request.urlopen(f"http://{page}/metrics", timeout=10) as answer:
                return SLOWDOWN.findall(answer.read().decode())

        gang.wait("its status page", gang.is_heard)
        gang.wait("a slow rank", slow)
        ((rank, slowdown),) = slow()
        assert rank == "2"
        # Its own work takes about three times as long; a busy machine adds to that of all ranks.
        assert 1.3 <= float(slowdown) < 4
        monitoring.wait("the alert", lambda: monitoring.firing("DDPJobStraggler"))
        (alert,) = monitoring.firing("DDPJobStraggler")
        assert alert.items() >= {"job_name": "digits", "namespace": "team", "node": "0", "rank": "2"}.items()
        (tmp_path / "mended").touch()
        gang.wait("no slow rank any more", lambda: not slow())
        monitoring.wait("the end of the alert", lambda: not monitoring.firing("DDPJobStraggler"))
