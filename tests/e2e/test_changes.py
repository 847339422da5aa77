"""What a user changes about a job that trains: it saves, and goes on as it is wanted, from the very step."""

from datetime import datetime
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant.machines import Machines
from tests.support.jobs import Team, condition

from .faults import graces
from .work import (
    BATCH,
    DEAF,
    LONG,
    STEPS,
    a_script,
    a_training,
    an_endless_training,
    change,
    ddpjob,
    saves,
    wait_for_steps,
)


def test_suspended_in_the_middle_of_an_epoch_it_saves_and_goes_on_from_there(host: Machines, team: Team) -> None:
    shared = host.new_folder()
    # Its pods are let through to each other, and so is the operator, which asks them how far they are.
    team.apply(an_endless_training(shared, network={"policy": "Enabled"}))
    wait_for_steps(team, attempt=1)
    host.wait("its progress", lambda: team.status().get("progress", {}).get("step"))
    begun = started(team.status())
    assert not saves(shared), "nobody has asked for it yet"

    change(team, "digits", suspend=True)
    status = team.wait("Suspended", seconds=LONG)
    assert (status["display"]["ready"], status["message"]) == ("0/2", "Nothing runs until the job is resumed")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (1, 0, 0)
    assert "startTime" not in status, "it is not active"
    assert "incidents" not in status, "nothing went wrong"
    host.wait("the pods to be gone", lambda: not team.pods())
    [saved] = saves(shared)
    assert seen(saved)

    change(team, "digits", suspend=False)
    said = wait_for_steps(team, attempt=2)
    assert f"resumed step={saved['step']} epoch={saved['epoch']} " in said
    status = team.status()
    assert (status["restarts"], status["disruptions"], status["bookkeeping"]["budget"]["streak"]) == (0, 0, 0)
    assert started(status) > begun, "the clock of activeDeadlineSeconds starts over"
    assert condition(status, "Suspended")["reason"] == "JobResumed"
    team.kubectl("delete", "ddpjob", "digits")


@pytest.mark.full("tests/cluster/test_cli.py; tests/unit/rank/test_entry.py")
def test_suspended_as_soon_as_it_runs_it_stops_at_once_and_that_nothing_is_kept_is_told_before(team: Team) -> None:
    container = {"args": ["--workload", "mlp", "--epochs", "10000"]}
    grace = {"terminationGracePeriodSeconds": 600}
    team.apply(a_training("brief", container, checkpoint={"path": "/checkpoints"}, pod=grace))
    team.wait("Running", "brief", seconds=LONG)
    assert "on resume it starts over" in ddpjob(team, "suspend", "brief")
    team.plant.wait("the pods to be gone, long before their grace is over", lambda: not team.pods("brief"))
    status = team.wait("Suspended", "brief")
    assert "starts over" in condition(status, "Suspended")["message"]
    team.plant.wait("no checkpoint to be shown", lambda: "checkpoint" not in team.status("brief"), 5)
    assert "incidents" not in team.status("brief")


@pytest.mark.full("test_docs.py: the page scale; tests/training/test_resume.py; tests/cluster/test_sizes.py")
def test_scaled_from_two_nodes_to_three_and_to_one_each_world_goes_on_where_the_last_one_stopped(
    host: Machines, team: Team
) -> None:
    shared = host.new_folder()
    team.apply(an_endless_training(shared))
    wait_for_steps(team, attempt=1)
    for attempt, nodes in ((2, 3), (3, 1)):
        team.kubectl("scale", "ddpjob/digits", f"--replicas={nodes}")
        said = wait_for_steps(team, attempt)
        last = saves(shared)[-1]
        assert f"resumed step={last['step']} epoch={last['epoch']} " in said
        status = team.status()
        assert (status["display"]["ready"], status["nodes"]) == (f"{nodes}/{nodes}", nodes)
        assert ranks(team) == [str(rank) for rank in range(nodes)]
    assert (status["restarts"], status["disruptions"]) == (0, 0), "nobody's fault, and free"
    assert "incidents" not in status

    change(team, "digits", suspend=True)
    team.wait("Suspended", seconds=LONG)
    found = saves(shared)
    assert [save["worldSize"] for save in found] == [2, 3, 1]
    assert all(seen(save) for save in found), "no sample of an epoch is lost or seen twice"
    assert [save["lineage"] for save in found] == [[1], [1, 2], [1, 2, 3]]
    team.kubectl("delete", "ddpjob", "digits")


@pytest.mark.full("tests/cluster/test_suspending.py and test_sizes.py")
@pytest.mark.parametrize("field", [{"suspend": True}, {"nodes": 3}], ids=["suspended", "resized"])
def test_pods_that_are_slow_to_save_have_their_whole_grace_when_a_job_is(field: dict[str, Any], team: Team) -> None:
    pod = {"terminationGracePeriodSeconds": 6}
    team.apply(a_script("slow", DEAF, nodes=2, pod=pod, restart={"gracePeriodSeconds": 1}))
    team.wait("Running", "slow", LONG)
    change(team, "slow", **field)
    team.plant.wait("all to be told", lambda: None not in graces(team, "slow"))
    assert graces(team, "slow") == {6}
    team.kubectl("delete", "ddpjob", "slow")


def started(status: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(status["startTime"])


def seen(save: dict[str, Any]) -> bool:
    """Whether it tells as many samples of its epoch as its steps have had, whoever took them."""
    epoch, steps = divmod(save["step"], STEPS)
    told = save["epoch"], save["samples"]
    before_evaluation = steps == 0 and told == (epoch, STEPS * BATCH)  # Suspended within it, it evaluates again.
    return before_evaluation or told == (epoch + 1, steps * BATCH)


def ranks(team: Team) -> list[str]:
    """Of the pods that there are."""
    return sorted(pod["metadata"]["labels"][Label.NODE] for pod in team.pods())
