"""When `ddpjob run` looks again."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ddpjob_operator.api import DDPJob
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.local.runner import Runner

JOB = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": {"spec": {"containers": []}}}})


def test_while_nothing_happens_it_sleeps_until_it_is_to_look_again(tmp_path: Path) -> None:
    runner, began = Runner(RunDirectory(tmp_path), JOB, [], print), time.monotonic()
    runner._wait(datetime.now(UTC) + timedelta(seconds=0.03))
    assert time.monotonic() - began > 0.02
