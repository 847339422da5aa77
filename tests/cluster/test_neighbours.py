"""What somebody may do to the jobs of others who may edit one namespace: nothing."""

import json
import time
from collections.abc import Callable

import pytest

from tests.support.jobs import FOR_LONG, STUBBORN, Team, a_job, meanwhile, steered
from tests.support.waiting import patience

MALLORY = "mallory"
SUMMARY = "".join(
    f"{line}\n" * times
    for line, times in (
        ("Root Cause (first observed failure):", 20),
        ("  rank      : 1 x", 40),
        ("  exitcode  : 1 x", 40),
        ("  traceback : x", 40),
    )
)
"""Torchrun's words in an order that takes a pattern with three gaps half a minute, in a termination message."""


class Neighbour:
    """Somebody with the role `edit` in a namespace of his own, in which a job of his runs."""

    def __init__(self, team: Team) -> None:
        self.team = Team(team.plant)
        self._kubeconfig = team.plant.kubeconfig_for(MALLORY)
        self.team.kubectl("create", "rolebinding", "edits", "--clusterrole=edit", f"--user={MALLORY}")
        self.team.apply(a_job(annotations=STUBBORN))
        self.team.until("{.status.display.ready}=2/2")

    def kubectl(self, *words: str) -> None:
        """Does something with his own rights."""
        self.team.plant.kubectl(*words, f"--namespace={self.team.namespace}", kubeconfig=self._kubeconfig)


def deletes_for_ever(who: Neighbour) -> None:
    """The pod is to be gone in thirty thousand years."""
    who.kubectl("delete", "pod", who.team.pod(0), "--grace-period=1000000000000", "--wait=false")


def says_what_takes_long_to_read(who: Neighbour) -> None:
    """As the last words of a rank."""
    annotations = steered(runs_for="0s", exit_code="1", message=SUMMARY)
    words = json.dumps({"metadata": {"annotations": annotations}})
    who.kubectl("patch", "pod", who.team.pod(1), f"--patch={words}")
    who.team.until("{.status.restarts}=1")


@pytest.mark.parametrize("does", [deletes_for_ever, says_what_takes_long_to_read])
def test_whatever_is_done_in_one_namespace_jobs_in_another_go_on(
    team: Team, does: Callable[[Neighbour], None]
) -> None:
    neighbour = Neighbour(team)
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    pods = {pod["metadata"]["uid"] for pod in team.pods()}
    does(neighbour)
    began = time.monotonic()
    meanwhile(team)
    assert time.monotonic() - began < patience(10)
    assert pods == {pod["metadata"]["uid"] for pod in team.pods()}
