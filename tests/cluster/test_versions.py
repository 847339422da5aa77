"""What a newer operator has written, and what comes back from a backup."""

from typing import Any

from ddpjob_operator.api.contract import FINISHED, Label

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, Team, a_job
from tests.support.newer import TOMORROW
from tests.support.waiting import wait_for

NEWER: dict[str, Any] = {
    "state": "Napping",
    "mood": {"hungry": True},
    "bookkeeping": {"incarnations": {"plan": ["b"]}},
    "conditions": [
        TOMORROW | {"weather": {"rain": 3}},
    ],
}
"""Words and fields that this version does not know."""


def mark(team: Team, name: str = "digits") -> str:
    """What the job's metadata says of its end."""
    metadata = (team.job(name) or {})["metadata"]
    return str(metadata.get("annotations", {}).get(FINISHED, ""))


def test_a_copy_of_a_finished_job_runs_and_the_job_itself_does_not_when_a_backup_drops_its_status(team: Team) -> None:
    team.apply(a_job(nodes=1))
    team.wait("Succeeded")
    wait_for("the mark", lambda: mark(team).startswith("Succeeded "))
    own = mark(team)
    backup = team.job() or {}
    copy = team.kubectl("get", "ddpjob", "digits", "-o", "yaml").replace("digits", "letters")
    team.kubectl("apply", "-f", "-", input=copy)
    metadata = {key: backup["metadata"][key] for key in ("name", "annotations")}
    team.delete("ddpjobs", "digits", wait=True)
    restored = team.create({**backup, "metadata": metadata})
    assert team.wait("Succeeded")["reason"] == "RestoredWithoutStatus"
    assert team.all("pods", f"{Label.JOB_UID}={restored['metadata']['uid']}") == []
    assert team.wait("Succeeded", name="letters")["reason"] == "AllRanksSucceeded"
    wait_for("the copy's own mark", lambda: mark(team, "letters") != own)


def test_what_a_newer_operator_has_written_survives_this_one(unattended: Plant) -> None:
    team = Team(unattended)
    with team.operator():
        team.apply(a_job(annotations=FOR_LONG))
        team.wait("Running")
    status = team.status()
    conditions = status["conditions"] + NEWER["conditions"]
    old = {"attempt": 1, "node": 0, "pod": "digits-0", "cause": "Sunburn", "time": "2026-01-01T12:00:00Z", "ray": 7}
    team.say(**NEWER | {"conditions": conditions, "incidents": [old]})
    with team.operator():
        team.change(nodes=1)
        team.until("{.status.attempt}=2", seconds=30)
        status = team.wait("Running")
    assert status["mood"] == NEWER["mood"]
    incarnations = status["bookkeeping"]["incarnations"]
    assert (incarnations["plan"], incarnations["default"]) == (["b"], 2)
    assert [one for one in status["conditions"] if one["type"] == "Tomorrow"] == NEWER["conditions"]
    assert [one["cause"] for one in status["incidents"]] == ["Sunburn"]
    assert status["incidents"][0]["ray"] == 7
