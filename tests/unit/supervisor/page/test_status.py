"""What a supervisor puts together for its page."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService
from ddpjob_supervisor.gang.messages import Beats, Hello
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.page.status import Status

PROCESSES = 8


def a_service(settings: Settings) -> CoordinatorService:
    """One that has heard of all processes."""
    service = CoordinatorService(settings)
    for node in range(settings.nodes):
        service.coordinator.joined(node, Hello("u", node, 1, 1, 29502, "r"), f"10.0.0.{node}:29502", 0.0)
    for node in range(settings.nodes):
        first = node * PROCESSES
        told = tuple({"rank": one, "attempt": 1, "activity": "training"} for one in range(first, first + PROCESSES))
        service.coordinator.said(node, Beats(1, told), 0.0)
    return service


@pytest.mark.parametrize(("nodes", "beats"), [(1, 8), (8, 64), (9, 0)])
def test_what_a_page_does_not_show_is_not_gathered_for_it(nodes: int, beats: int) -> None:
    async def gathered() -> int:
        settings, nothing = Settings(uid="u", nodes=nodes, processes=PROCESSES), cast("Any", None)
        service = a_service(settings)
        return len(Status(settings, nothing, service, nothing, nothing)._of_all(service).beats)

    assert asyncio.run(gathered()) == beats


@pytest.mark.parametrize(("running", "phase"), [(True, "Running"), (False, "Gathering")])
def test_the_page_of_another_node_lists_the_processes_of_this_node(*, running: bool, phase: str) -> None:
    settings, nothing = Settings(uid="u", node=1, nodes=2, processes=2), cast("Any", None)
    follower: Any = SimpleNamespace(attempt=3, running=running, beats=lambda: [{"rank": 2}, {"rank": 3}])
    rendezvous: Any = SimpleNamespace(where=lambda: SimpleNamespace(address="job-0:29502"))
    said = Status(settings, follower, None, rendezvous, nothing).document()
    assert [(one["rank"], one["node"]) for one in said["ranks"]] == [(2, 1), (3, 1)]
    assert (said["attempt"], said["phase"], said["coordinator"]) == (3, phase, "job-0:29502")
