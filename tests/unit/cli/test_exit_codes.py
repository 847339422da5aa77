"""How a command that is not carried out ends: with 2 if nothing was changed, with 1 if the cluster is why.

A command that waits for a job ends as the job has.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.cli import cluster as commands
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster import there
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.logs import Which
from ddpjob_operator.cli.main import main
from ddpjob_operator.cli.phrases import exit_code
from ddpjob_operator.client import Document, as_job

from tests.unit.client.api import a_cluster, a_job, a_list, refused

NO_DDPJOB = refused(404)
GONE = refused(404, "NotFound", name="digits")
FORBIDDEN = refused(403, "Forbidden")
BROKEN = refused(500)
ELSEWHERE = refused(404, "NotFound", kind="namespaces", name="team")
NOT_INSTALLED = "DDPJob is not installed in the cluster of context here: helm install"
CANNOT_ANSWER = "the cluster of context here cannot answer now: no"
REFUSES = "the cluster of context here refuses: no"
CREATE = "create it with: kubectl create namespace team"
HINT = "; -n is the namespace: for 2 nodes give --nodes 2"
NOT_NODES = f"no namespace team in the cluster of context here; {CREATE}{HINT}"
PACKED = {"metadata": {"name": "code", "uid": "uid-2", "resourceVersion": "5"}}
SPEC = {"nodes": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}}
RUNS: Document = {**a_job(), "spec": SPEC}
CONDITION = {"type": "Complete", "status": "True", "reason": "Finished", "message": "", "observedGeneration": 1}
ENDED = {"state": "Succeeded", "conditions": [{**CONDITION, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
SUCCEEDED: Document = {**RUNS, "status": ENDED}
CANCELLED: Document = {**RUNS, "spec": {**SPEC, "cancel": True}}
SUSPENDING = [RUNS, RUNS, RUNS, {}, {}]
"""Answers to `--replace` until the job is to save and stop."""

REFUSED: dict[str, tuple[str, list[Any], int, str]] = {
    "a script, without DDPJob": ("submit train.py", [NO_DDPJOB], 2, NOT_INSTALLED),
    "a file, without DDPJob": ("submit job.yaml", [NO_DDPJOB], 2, NOT_INSTALLED),
    "jobs, without DDPJob": ("status -n team", [NO_DDPJOB], 2, NOT_INSTALLED),
    "an option": ("submit train.py --memory lots", [], 2, "--memory lots: must be a Kubernetes quantity"),
    "no such namespace": ("submit train.py", [ELSEWHERE], 2, "no namespace team in the cluster of context here"),
    "nodes for a namespace": ("submit train.py -n 2", [ELSEWHERE], 2, NOT_NODES),
    "nodes for a namespace that one may not use": ("submit train.py -n 2", [FORBIDDEN], 1, f"{REFUSES}{HINT}"),
    "the server finds it wrong": ("submit train.py", [refused(422)], 2, "the API server refuses train: no"),
    "the name is taken": ("submit train.py", [refused(409, "AlreadyExists")], 2, "train exists already in"),
    "stacks of all namespaces": ("status -A --stacks", [], 2, "-A --stacks: --stacks means one job; give its"),
    "a name in all namespaces": ("status -A digits", [], 2, "-A digits: a name means one job; give its namespace"),
    "a uid without a history": ("status --uid a", [], 2, "--uid chooses among jobs of one name in a history"),
    "an image without a history": ("ls --reader-image a", [], 2, "--reader-image is for the pod that reads a claim"),
    "a terminal that is left": (
        "run train.py --attach 0 --detach",
        [],
        2,
        "--attach needs this terminal, but",
    ),
    "a rank that is not there": ("run train.py --attach 1", [], 2, "--attach 1: "),
    "files of no folder": (
        "submit --include train.py -m train",
        [],
        2,
        "--include is for files of the --source",
    ),
    "no number of jobs": (
        "prune --history . --keep -1",
        [],
        2,
        "argument --keep: -1 is not a number of jobs",
    ),
    "no such job": ("delete -n team digits", [GONE, a_list()], 2, "no DDPJob digits in namespace team"),
    "it has ended, and is not to be cancelled": (
        "cancel -n team digits",
        [SUCCEEDED],
        2,
        "digits has succeeded and cannot be changed",
    ),
    "it was cancelled": ("resume -n team digits", [CANCELLED], 2, "digits was cancelled and cannot be changed"),
    "it has ended": ("resume -n team digits", [SUCCEEDED], 2, "digits has succeeded and cannot be changed"),
    "no right to submit": ("submit train.py", [FORBIDDEN], 1, REFUSES),
    "no right to send code": (
        "submit train.py",
        [{}, FORBIDDEN],
        1,
        f"cannot store the code in a ConfigMap: {REFUSES}",
    ),
    "no right to see jobs": ("status -n team", [FORBIDDEN], 1, REFUSES),
    "no right to change a job": ("suspend -n team digits", [RUNS, FORBIDDEN], 1, REFUSES),
    "an unknown user": ("status -n team", [refused(401)], 1, "the cluster of context here rejects your credentials"),
    "no answer now": ("status -n team", [BROKEN], 1, CANNOT_ANSWER),
    "refused halfway": ("submit train.py", [{}, {}, PACKED, FORBIDDEN, {}], 1, REFUSES),
    "broken halfway": ("submit train.py", [{}, {}, PACKED, BROKEN], 1, CANNOT_ANSWER),
    "deleted halfway": ("submit job.yaml --replace", [*SUSPENDING, a_list()], 1, "digits was deleted"),
    "ended halfway": ("submit job.yaml --replace", [*SUSPENDING, a_list(SUCCEEDED)], 1, "digits has succeeded"),
}
"""What is called, what the cluster answers, the exit code, and how the one line of error begins."""


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "digits"}, "spec": SPEC}
    Path("job.yaml").write_text(json.dumps(job))


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_not_done_is_told_in_one_line_and_by_the_exit_code(
    case: tuple[str, list[Any], int, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, answers, code, message = case
    cluster = a_cluster(*answers)
    monkeypatch.setattr(commands, "connect", lambda *_: cluster)
    monkeypatch.setattr(sys, "argv", ["ddpjob", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert (ended.value.code, said.startswith(f"error: {message}"), said.count("\n")) == (code, True, 1), said
    assert cluster.answers == [], "each was asked for"
    granted = cluster.asked[:-1]
    changes = [method for method, _, _, query in granted if method != "GET" and "dryRun" not in (query or {})]
    assert code == 1 or changes == [], "nothing was changed"


def failed(reason: str, **incident: Any) -> dict[str, Any]:
    condition = {**CONDITION, "type": "Failed", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    known = {
        "time": "2026-01-01T00:00:00Z",
        "attempt": 1,
        "node": 1,
        "pod": "x",
        "cause": "Application",
        "message": "",
    }
    return {"state": "Failed", "conditions": [condition], "incidents": [known | incident] if incident else []}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"state": "Succeeded"}, 0),
        ({"state": "Suspended"}, 130),
        (failed("Application", exitCode=3), 3),
        (failed("Application", exitCode=0), 1),
        (failed("Application", rank=1), 1),
        (failed("InvalidSpec"), 1),
        (failed("DeadlineExceeded", exitCode=3), 124),
        (failed("StartDeadlineExceeded"), 124),
    ],
)
def test_a_job_that_is_waited_for_ends_the_command_as_it_has_ended(status: dict[str, Any], code: int) -> None:
    assert exit_code(as_job(RUNS | {"status": status}).status) == code


@pytest.mark.parametrize(
    ("words", "called"),
    [
        ("status -w -n team", ("watch", None, {"everywhere": False})),
        ("status -w digits -n team", ("watch", "digits", {"everywhere": False})),
        ("status -w -A", ("watch", None, {"everywhere": True})),
        ("status digits --stacks -n team", ("stacks", "digits", {})),
        ("logs digits -n team", ("logs", "digits", Which(), {"follow": False})),
        ("logs digits -n team --rank 3", ("logs", "digits", Which(rank=3), {"follow": False})),
        ("logs digits -n team -f --node 1", ("logs", "digits", Which(node=1), {"follow": True})),
    ],
)
def test_a_command_for_a_cluster_gets_what_was_given(
    words: str, called: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[Any, ...]] = []

    def hears(name: str) -> Any:
        return lambda _, *given, **more: heard.append((name, *given, more)) or 7

    for name in ("watch", "stacks", "logs"):
        monkeypatch.setattr(there, name, hears(name))
    monkeypatch.setattr(commands, "connect", lambda *_: a_cluster())
    assert call(parse(words.split())) == 7
    assert heard == [called if isinstance(called[-1], dict) else (*called, {})]


@pytest.mark.parametrize(
    ("name", "answer", "where"),
    [
        ("digits", RUNS, "namespace team of the cluster of context here"),
        (None, a_list(RUNS), "namespace team of the cluster of context here"),
        ("digits", GONE, None),
    ],
)
def test_where_a_job_of_a_name_is_on_a_cluster(
    name: str | None, answer: Any, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "connect", lambda: a_cluster(answer))
    assert commands.location_of_job(name) == where
