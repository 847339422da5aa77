"""When `ddpjob run` looks again, and which ports it takes."""

import errno
import os
import socket
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob, DDPJobStatus
from ddpjob_operator.api.status import NetworkStatus
from ddpjob_operator.local import ASIDE, RunDirectory
from ddpjob_operator.local.runner import Runner, _seen

JOB = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": {"spec": {"containers": []}}}})


def test_while_nothing_happens_it_sleeps_until_it_is_to_look_again(tmp_path: Path) -> None:
    runner, began = Runner(RunDirectory(tmp_path), JOB, [], print), time.monotonic()
    runner._wait(datetime.now(UTC) + timedelta(seconds=0.03))
    assert time.monotonic() - began > 0.02


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (0, []),
        (1, ["port {0} is taken; using {3}"]),
        (2, ["ports {0} and {1} are taken; using {3} and {4}"]),
        (3, ["ports {0}, {1} and {2} are taken; using {3}, {4} and {5}"]),
    ],
)
def test_of_all_ports_that_are_taken_one_line_tells(taken: int, words: list[str], tmp_path: Path) -> None:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(3)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        ports = [listener.getsockname()[1] for listener in sockets]
        for listener in sockets[taken:]:
            listener.close()
        for listener in sockets[:taken]:
            listener.listen()
        network = NetworkStatus(master_port=ports[0], status_port=ports[1], control_port=ports[2])
        job = JOB.model_copy(update={"status": DDPJobStatus(network=network)})
        told: list[Any] = []
        chosen = Runner(RunDirectory(tmp_path), job, [], told.append)._free_ports()
    found = [chosen.master, chosen.status, chosen.control]
    assert [event.message for event in told] == [text.format(*ports, *found) for text in words]
    assert all(event.reason == ASIDE for event in told)
    assert found[taken:] == ports[taken:]


def test_while_a_person_debugs_a_rank_nothing_starts_again_and_nobody_hurries() -> None:
    rule = {"causes": ["Application"], "action": "RestartFree"}
    spec = {**JOB.spec.to_dict(), "restart": {"maxRestarts": 3, "rules": [rule]}, "finishTimeoutSeconds": 5}
    job = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": spec})
    seen = _seen(job, attached=True)
    attached, restart = seen.job.spec, seen.job.spec.restart
    assert seen.settings.no_restarts == "nothing is restarted with --attach"
    assert (restart.max_restarts, restart.max_disruptions, restart.rules) == (0, 0, ())
    assert attached.finish_timeout_seconds >= 365 * 86400
    alone = _seen(job)
    assert (alone.job.spec.restart.max_restarts, alone.settings.no_restarts) == (3, "")


def test_where_nothing_can_be_written_it_tries_again_each_second_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, told, waits = RunDirectory(tmp_path), [], []
    runner = Runner(run, JOB, [], lambda event: told.append(event.message))

    def refused() -> None:
        if len(waits) == 3:
            runner.stop()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.job_file))

    run.create()
    monkeypatch.setattr(runner, "_round", refused)
    monkeypatch.setattr(runner, "_wait", lambda until: waits.append((until - datetime.now(UTC)).total_seconds()))
    runner.run()
    assert waits == pytest.approx([1.0] * 3, abs=0.5)
    why = f"No space left on device: {run.job_file}"
    assert told == [
        f"{why}; retrying until it can be written",
        f"{why}; the ranks are told to stop, and the next ddpjob run sees how they end",
    ]
