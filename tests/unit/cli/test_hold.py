"""`ddpjob hold NAME`: the job that it creates, and what it says."""

import importlib
import re
from functools import partial
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.validation import problems
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster import held_run
from ddpjob_operator.client import as_job

from tests.unit.client.api import JOBS, a_cluster, jobs_with, refused

talk = importlib.import_module("ddpjob_operator.cli.cluster.talk")
hold = importlib.import_module("ddpjob_operator.cli.cluster.hold").hold


def made(words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The job that the command would create."""
    assert hold(a_cluster({}), parse(["hold", *words.split(), "--dry-run", "-o", "yaml"])) == 0
    document: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    assert problems(document) == []
    return document


def test_it_is_a_job_without_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    document = made("dev --nodes 2 --gpus-per-node 8 --queue team-a --volume data:/data", capsys)
    job = DDPJob.from_dict(document)
    assert (job.metadata.name, job.spec.nodes, job.spec.held) == ("dev", 2, True)
    assert job.spec.trainer["command"] == ["ddpjob-supervise", "--hold", "1800"]
    assert job.spec.resources["nvidia.com/gpu"] in {8, "8"}
    assert document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"


def test_its_limits_are_those_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    spec = made("dev --idle-timeout 2h --deadline 8h", capsys)["spec"]
    assert spec["template"]["spec"]["containers"][0]["command"] == ["ddpjob-supervise", "--hold", "7200"]
    assert spec["activeDeadlineSeconds"] == 28_800


@pytest.mark.parametrize(
    ("command", "args", "held"),
    [
        ("ddpjob-supervise", "--hold 1800", True),
        ("ddpjob-supervise --hold=1800", "", True),
        ("/usr/bin/ddpjob-supervise --preload torchvision --start-method=warm", "--hold 1800", True),
        ("ddpjob-supervise train.py", "", False),
        ("ddpjob-supervise train.py --hold 3", "", False),
        ("ddpjob-supervise --max-restarts 3", "train.py --hold", False),
        ("ddpjob-supervise -m train --hold", "", False),
        ("ddpjob-supervise --preload --hold train.py", "", False),
        ("ddpjob-supervise", "", False),
        ("python --hold", "", False),
        ("", "ddpjob-supervise --hold 1800", False),
    ],
)
def test_a_job_is_held_if_its_supervisor_has_the_option(command: str, args: str, *, held: bool) -> None:
    container = {"name": "trainer", "image": "a", "command": command.split() or None, "args": args.split() or None}
    template = {"spec": {"containers": [container]}}
    document = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"template": template}}
    assert DDPJob.from_dict({"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", **document}).spec.held is held


def test_it_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster({})
    assert hold(cluster, parse(["hold", "dev", "--nodes", "2"])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dev: 2 nodes x 1 process, held in namespace team of context here",
        "Run a program on it with: ddpjob run --on dev -n team SCRIPT",
        "End it with: ddpjob delete dev -n team",
    ]
    assert [request[:2] for request in cluster.asked] == [("POST", JOBS)]


def test_a_dry_run_creates_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster({})
    assert hold(cluster, parse(["hold", "dev", "--dry-run"])) == 0
    said = "dev: 1 node x 1 process, can be held in namespace team of context here; nothing was created\n"
    assert capsys.readouterr().out == said
    assert [query["dryRun"] for _, _, _, query in cluster.asked] == ["All"]


def test_a_name_that_is_taken_may_be_a_hold_already() -> None:
    with pytest.raises(
        BadInputError, match=r"^dev exists already .* run a program on it: ddpjob run --on dev -n team "
    ):
        hold(a_cluster(refused(409, "AlreadyExists")), parse(["hold", "dev"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dev --nodes 0", "--nodes: 0 is too small"),
        ("Dev", "--name: "),
        ("dev --idle-timeout 8785h", "--idle-timeout: 31626000 s is too long; use at most 31622400 s"),
        ("dev -o yaml", "-o yaml works only with --dry-run; add it"),
    ],
)
def test_a_mistake_gets_one_message(words: str, message: str) -> None:
    with pytest.raises(BadInputError) as said:
        hold(a_cluster(), parse(["hold", *words.split()]))
    assert message in str(said.value)


LACKS = 'Rank 0 failed: StartError: exec: "ddpjob-supervise": executable file not found in $PATH'

AGAIN = "and hold it again, with an image that has ddpjob-supervise"


@pytest.mark.parametrize(
    ("ended_with", "message"),
    [
        (
            "Over",
            "dev has ended: Over; delete it: ddpjob delete dev -n team; and hold it again: ddpjob hold dev -n team",
        ),
        (
            LACKS,
            f"dev has ended: {LACKS}; delete it: ddpjob delete dev -n team; {AGAIN}: ddpjob hold dev -n team",
        ),
        (None, "dev no longer exists; hold it again: ddpjob hold dev -n team"),
    ],
)
def test_who_runs_a_program_after_the_end_of_a_hold_learns_how_to_hold_again(
    ended_with: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = made("dev", capsys)
    complete = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "observedGeneration": 1}
    ended = complete | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    found = job | {"status": {"message": ended_with, "conditions": [ended]}} if ended_with else None
    with pytest.raises(BadInputError, match=f"^{re.escape(message)}$"):
        talk.first_pod(jobs_with(find=lambda _: found), job, partial(held_run.check_held, "dev", "team"))


def test_a_job_that_has_ended_and_was_never_held_is_not_taken_for_a_hold(capsys: pytest.CaptureFixture[str]) -> None:
    job = made("dev", capsys)
    complete = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "observedGeneration": 1}
    status = {"message": "Over", "conditions": [complete | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    spec = {**job["spec"], "template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    with pytest.raises(BadInputError, match=r"^dev is not held: it has a program of its own"):
        held_run.check_held("dev", "team", as_job({**job, "spec": spec, "status": status}))
