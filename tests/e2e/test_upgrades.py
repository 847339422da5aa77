"""The operator's release changed, taken away and put back while jobs run: pods go on, and what happened is judged."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.plant.images import OPERATOR
from tests.plant.machines import Machines
from tests.support.jobs import Team
from tests.support.waiting import patience

from .figures import note
from .noting import SOON, Training
from .processes import operators, rank_of
from .release import install, uninstall
from .test_operator import leader, pods_of
from .work import LONG, a_script, a_training

NEXT = "next"
"""A tag that no release has."""

PLAIN = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
while True:
    dist.all_reduce(value)
    time.sleep(0.05)
"""

ENDS_WHEN_TOLD = """
import signal, sys, time

signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(3))
time.sleep(3600)
"""


@pytest.fixture
def training(host: Machines) -> Iterator[Training]:
    """A training with the supervisor, and beside it a plain script without."""
    training = Training(Team(host), host.new_folder())
    training.start()
    training.team.apply(a_training("plain", {"command": ["python3", "-c", PLAIN]}))
    training.team.wait("Running", "plain", LONG)
    yield training
    for job in ("digits", "plain"):
        training.team.kubectl("delete", "ddpjob", job)


@contextmanager
def untouched(training: Training) -> Iterator[None]:
    """Neither job is touched meanwhile, and the status of the one that tells its progress goes on afterwards."""
    before = facts(training.team)
    yield
    assert facts(training.team) == before
    step = training.team.status()["progress"]["step"]
    training.goes_on(1)
    told = lambda: training.team.status()["progress"]["step"] > step  # noqa: E731
    training.team.plant.wait("the status to go on", told, SOON)
    assert facts(training.team) == before


def facts(team: Team) -> dict[str, Any]:
    """What an operator could have done to the jobs: pods by their uids with their restarts, and what is counted."""
    pods = {
        pod["metadata"]["uid"]: (pod["metadata"].get("deletionTimestamp"), one["restartCount"])
        for name in ("digits", "plain")
        for pod in team.pods(name)
        for one in pod["status"]["containerStatuses"]
    }
    counted = ("state", "attempt", "restarts", "disruptions", "incidents")
    jobs = {name: team.status(name) for name in ("digits", "plain")}
    return {
        "pods": pods,
        # The steps in it go on with the training.
        "bookkeeping": {name: {**status.get("bookkeeping", {}), "steps": None} for name, status in jobs.items()},
        **{name: [status.get(one) for one in counted] for name, status in jobs.items()},
    }


@pytest.mark.full("tests/cluster/test_replicas.py: a new operator changes nothing; tests/chart/test_release.py")
def test_another_value_and_another_image_take_over_within_the_lease_and_touch_no_job(
    host: Machines, training: Training
) -> None:
    repository, _, _ = OPERATOR.rpartition(":")
    for node in host.nodes.values():
        node.tag(OPERATOR, f"{repository}:{NEXT}")
    try:
        for change in ("resyncSeconds=60", f"image.tag={NEXT}"):
            with untouched(training):
                former = pods_of(host)
                install(host, change)
                upgraded = time.monotonic()
                host.wait("a new leader", lambda former=former: leader(host) in pods_of(host).keys() - former)
                note("upgrade, until the new operator leads", time.monotonic() - upgraded)
                assert time.monotonic() - upgraded < patience(10)
    finally:
        install(host)


@pytest.mark.full("tests/cluster/test_replicas.py, where an operator is away; tests/chart/test_release.py")
def test_without_an_operator_jobs_go_on_and_the_next_install_judges_what_has_happened(
    host: Machines, training: Training
) -> None:
    team = training.team
    for name in ("ends", "fails"):
        command = ["python3", "-c", ENDS_WHEN_TOLD]
        team.apply(a_script(name, command, nodes=2, restart={"backoffSeconds": 0}))
        team.wait("Running", name, LONG)
    with untouched(training):
        uninstall(host)
        try:
            assert not operators(host)
            before = {name: team.job(name) for name in ("ends", "fails")}
            for rank in (0, 1):
                rank_of(uid(team, "ends"), rank).send_signal(signal.SIGUSR1)
            rank_of(uid(team, "fails"), 1).send_signal(signal.SIGUSR2)
            host.wait("them to end", lambda: [ended(team, one) for one in ("ends", "fails")] == [2, 1])
            training.goes_on(1)
            assert {name: team.job(name) for name in ("ends", "fails")} == before, "nobody looks after them"
        finally:
            install(host)
        assert team.wait("Succeeded", "ends", LONG)["restarts"] == 0
        team.until("{.status.attempt}=2", "fails", LONG)
        status = team.wait("Running", "fails", LONG)
        [failure] = status["incidents"]
        assert (status["restarts"], failure["node"], failure["exitCode"]) == (1, 1, 3)


def uid(team: Team, name: str) -> str:
    return str((team.job(name) or {})["metadata"]["uid"])


def ended(team: Team, name: str) -> int:
    """How many of a job's pods have ended by themselves."""
    return sum(pod["status"]["phase"] in {"Succeeded", "Failed"} for pod in team.pods(name))
