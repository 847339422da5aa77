"""What `ddpjob status NAME` and `ddpjob describe NAME` tell of a job, here and on a cluster."""

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.cluster.job_status import status as status_there
from ddpjob_operator.cli.describe import FULL, describe
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.status import status as status_here
from ddpjob_operator.local import RunDirectory, Runs
from ddpjob_operator.view_model import Around, LoggedProgress, pace

from tests.unit.client.api import a_list, jobs_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> str:
    """So many seconds from now."""
    return (NOW + timedelta(seconds=seconds)).isoformat()


def condition(kind: str, reason: str, seconds: float = -30) -> dict[str, Any]:
    said = {"type": kind, "status": "True", "reason": reason, "message": reason, "observedGeneration": 1}
    return {**said, "lastTransitionTime": moment(seconds)}


def failure(attempt: int, **more: Any) -> dict[str, Any]:
    known = {"time": moment(-90), "attempt": attempt, "node": 1, "rank": 1, "pod": "digits-1-x", "rule": "default"}
    return {**known, "cause": "Application", "message": "ValueError: no", "exitCode": 7, **more}


def told(spec: dict[str, Any], status: dict[str, Any], *, wide: bool = False, **around: Any) -> list[str]:
    """The lines of a job's description, with any spaces as one."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    job = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": template, **spec}, "status": status})
    said = io.StringIO()
    describe(Screen(file=said, width=200), job, NOW, Around(results="results", **around), wide=wide)
    return [" ".join(line.split()) for line in said.getvalue().splitlines()]


HELD = {
    "spec": {"containers": [{"name": "trainer", "image": "any", "command": ["ddpjob-supervise", "--hold", "60"]}]}
}
LIMITED = {"restart": {"maxDisruptions": 3}}
RULED = {"action": "Fail", "rule": "spec.restart.rules[2]"}
PLACED = {
    "scheduling": {"topology": {"preferred": "example.com/rack"}},
    "template": {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["ddpjob-train"]}]}},
}
SIZE = {"nodes": 2, "procsPerNode": 1, "backend": "Gloo"}
ACTIVE = {"startTime": moment(-60)}


REQUESTED: dict[str, Any] = {"request": "a", "time": moment(-5), "attempt": 1}
STARTING: dict[str, Any] = {
    "state": "Running",
    "attempt": 1,
    "bookkeeping": {"supervised": True},
    "conditions": [condition("Running", "AllNodesRunning", -8)],
}
PROGRESS = {"epoch": 2, "step": 120, "totalSteps": 400, "percent": 30.0, "loss": 0.25}
DISPLAY = {"progress": "30%", "eta": "56s"}
SPEED = {"samplesPerSecond": 1234.56, "slowestNode": 1, "lastStepTime": moment(-3)}
SUCCEEDED = {"conditions": [condition("Complete", "AllRanksSucceeded")]}


@pytest.mark.parametrize(
    ("sentence", "spec", "status", "line"),
    [
        (
            "how far training is",
            {},
            {"progress": PROGRESS, "display": DISPLAY},
            "Progress: 30%, step 120 of 400, epoch 2, loss 0.25, 56s left",
        ),
        (
            "how far it is where nobody knows how many steps there are",
            {},
            {"progress": {"step": 120}, "display": {"progress": "step 120"}},
            "Progress: step 120",
        ),
        (
            "what it has done since a restart after which nobody knows where it went on",
            {},
            {"progress": {"stepsSinceRestart": 12}, "display": {"progress": "12 steps since restart"}},
            "Progress: 12 steps since restart",
        ),
        (
            "how far it came",
            {},
            {"progress": PROGRESS, "display": DISPLAY, **SUCCEEDED},
            "Progress: 30%, step 120 of 400, epoch 2, loss 0.25",
        ),
        (
            "where it went on",
            {},
            {"progress": {"step": 120, "attempt": 2, "firstStep": 101, "begins": "FromCheckpoint"}},
            "Progress: step 120, resumed after step 100",
        ),
        (
            "nothing of that if there was no checkpoint",
            {},
            {"progress": {"step": 120, "attempt": 2, "firstStep": 101, "begins": "NothingSaved"}},
            "Progress: step 120",
        ),
        (
            "that it evaluates",
            {},
            {"progress": {"step": 7, "activity": "Evaluating"}},
            "Progress: step 7, evaluating",
        ),
        (
            "that its first step is awaited",
            {},
            STARTING,
            "Progress: waiting for the first step (8s)",
        ),
        (
            "of a hold nothing but how far its last program came: its message says if one runs",
            {"template": HELD},
            {**STARTING, "attempt": 2, "progress": {"attempt": 1, "step": 7}},
            "Progress: step 7",
        ),
        (
            "that the first step since a restart is awaited, and how far it had come",
            {},
            {**STARTING, "attempt": 2, "progress": {"attempt": 1, "step": 7, "lastStepTime": moment(-27)}},
            "Progress: step 7, waiting for the first step of attempt 2 (8s)",
        ),
        (
            "nothing of its first step once there is one",
            {},
            {**STARTING, "attempt": 2, "progress": {"attempt": 2, "step": 8, "lastStepTime": moment(-1)}},
            "Progress: step 8",
        ),
        (
            "how fast it is",
            {},
            {"progress": SPEED},
            "Speed: 1,235 samples/s, rank 1 is the slowest, last step 3s ago",
        ),
        (
            "how fast a script is that reports no samples",
            {},
            {"progress": {"stepSeconds": 0.2149, "lastStepTime": moment(-3)}},
            "Speed: 0.21 s per step, last step 3s ago",
        ),
        (
            "what is saved",
            {},
            {"checkpoint": {"step": 100, "time": moment(-61)}},
            "Checkpoint: step 100, 61s ago",
        ),
        ("what it gives back", {}, {"result": '{"accuracy":0.93}'}, 'Result: {"accuracy":0.93}'),
        ("the beginning of it", {}, {"result": f'"{"x" * 500}"'}, f'Result: "{"x" * 199}…'),
        (
            "where it is, if it is large",
            {"history": {"path": "s3://bucket/history"}},
            {"resultPlace": "team/train/result.jsonl"},
            "Result: in s3://bucket/history/team/train/result.jsonl",
        ),
        (
            "its place in the directory of a run on this machine",
            {},
            {"resultPlace": "team/train/result.jsonl"},
            "Result: in results/team/train/result.jsonl",
        ),
        (
            "that a checkpoint was requested",
            {},
            {"requestedCheckpoint": {**REQUESTED, "state": "Requested"}},
            "Request: a checkpoint, 5s ago: not complete yet",
        ),
        (
            "why it was not saved",
            {},
            {"requestedCheckpoint": {**REQUESTED, "state": "NotSaved", "message": "no step has finished yet"}},
            "Request: a checkpoint, 5s ago: not saved: no step has finished yet",
        ),
        (
            "how fast it is, of a job whose ranks may follow placement",
            PLACED,
            {"progress": SPEED},
            "Speed: 1,235 samples/s, node 1 is the slowest, last step 3s ago",
        ),
        (
            "who is slow, of such a job",
            PLACED,
            {"stragglers": [{"node": 1, "nodeName": "b", "slowdown": 1.8}]},
            "Stragglers: node 1 on b (1.8 x)",
        ),
        (
            "who is slow",
            {},
            {"stragglers": [{"node": 1, "nodeName": "b", "slowdown": 1.8}, {"node": 3, "slowdown": 1.5}]},
            "Stragglers: rank 1 on b (1.8 x), rank 3 on ? (1.5 x)",
        ),
        (
            "the budget that is left",
            {},
            {"bookkeeping": {"budget": {"used": 2}}},
            "Budget: 4 of 6 restarts left within 1h of healthy running",
        ),
        (
            "disruptions where they are limited",
            LIMITED,
            {"bookkeeping": {"budget": {"used": 1, "disruptions": 2}}},
            "Budget: 5 of 6 restarts and 1 of 3 disruptions left within 1h of healthy running",
        ),
        (
            "one of each",
            {"restart": {"maxRestarts": 1, "maxDisruptions": 1, "windowSeconds": 1}},
            {},
            "Budget: 1 of 1 restart and 1 of 1 disruption left within 1s of healthy running",
        ),
        (
            "a budget that is whole again since the job was healthy for so long",
            {"restart": {"windowSeconds": 20}},
            {"bookkeeping": {"budget": {"used": 2}}, "conditions": [condition("Running", "AllPodsRunning")]},
            "Budget: 6 of 6 restarts left within 20s of healthy running",
        ),
        ("how often it started again", {}, {"restarts": 2}, "Restarts: 2"),
        (
            "what of that its budget did not pay for",
            {},
            {"restarts": 2, "disruptions": 1},
            "Restarts: 2, and 1 not counted",
        ),
        ("its size", {"nodes": 3}, SIZE | {"nodes": 3}, "World: 3 nodes x 1 process, Gloo"),
        ("that it is smaller than it may be", {"nodes": 3}, SIZE, "World: 2 nodes x 1 process, Gloo (3 wanted)"),
        ("that it has none yet", {"nodes": 3}, {}, "World: not started"),
        ("a wait", {}, {"backoffUntil": moment(11.2)}, "Backoff: 12s left"),
        ("a deadline", {"activeDeadlineSeconds": 250}, ACTIVE, "Deadline: in 3m10s (activeDeadlineSeconds)"),
        (
            "a deadline that its organisation has set",
            {},
            {**ACTIVE, "defaults": {"activeDeadlineSeconds": 250, "sources": {"activeDeadlineSeconds": "all-teams"}}},
            "Deadline: in 3m10s (activeDeadlineSeconds)",
        ),
        (
            "both deadlines until it has run",
            {"activeDeadlineSeconds": 240, "startDeadlineSeconds": 90},
            ACTIVE,
            "Deadline: in 3m (activeDeadlineSeconds), to run in 30s (startDeadlineSeconds)",
        ),
        (
            "when it is deleted",
            {"ttlSecondsAfterFinished": 7200, "activeDeadlineSeconds": 240},
            {**ACTIVE, "completionTime": moment(0), "conditions": [condition("Complete", "AllRanksSucceeded")]},
            "Deadline: deleted in 2h (ttlSecondsAfterFinished)",
        ),
        (
            "nodes that are avoided",
            {},
            {
                "avoidedNodeNames": [
                    {"nodeName": "a", "until": moment(-9)},
                    {"nodeName": "b", "until": moment(3000), "cause": "NodeLost"},
                    {"nodeName": "c", "until": moment(90), "cause": "DeviceFailed", "required": True},
                    {"nodeName": "d", "until": moment(9)},
                ]
            },
            "Avoids: b for 50m if possible (NodeLost), c for 1m30s (DeviceFailed), d for 9s if possible",
        ),
        (
            "who failed first, and the others",
            {},
            {"incidents": [failure(1, step=7, consequences=1, message="no")]},
            "Incident: rank 1, exit code 7, after step 7: Application: no; 1 more rank failed with it",
        ),
        ("that a default decided", {}, {"incidents": [failure(1)]}, "Decided: Restart by default"),
        ("which rule decided", {}, {"incidents": [failure(1, **RULED)]}, "Decided: Fail by spec.restart.rules[2]"),
        (
            "why there was no restart all the same",
            {},
            {"incidents": [failure(1)], "conditions": [condition("Failed", "CrashLoop")]},
            "Decided: Restart by default, but CrashLoop",
        ),
    ],
)
def test_the_description_tells(sentence: str, spec: dict[str, Any], status: dict[str, Any], line: str) -> None:
    assert line in told(spec, status), sentence


NOT_NOW = ["Speed", "Stragglers"]


@pytest.mark.parametrize("name", [*NOT_NOW, "Backoff", "Avoids"])
def test_of_a_finished_job_it_does_not_tell_how_it_goes_on(name: str) -> None:
    status = {
        "progress": SPEED,
        "stragglers": [{"node": 1, "slowdown": 1.8}],
        "backoffUntil": moment(9),
        "avoidedNodeNames": [{"nodeName": "a", "until": moment(9)}],
    }
    assert [line for line in told({}, status) if line.startswith(name)] != []
    assert [line for line in told({}, status | SUCCEEDED) if line.startswith(name)] == []


BLOCKED = {"conditions": [condition("Blocked", "ResourcesMissing")]}


def failed(reason: str) -> dict[str, Any]:
    return {"conditions": [condition("Failed", reason)]}


@pytest.mark.parametrize(
    ("cause", "more", "advice"),
    [
        pytest.param("OutOfMemory", {}, "Raise the memory limit, or use less: ", id="about the last incident"),
        pytest.param(
            "StartedOver",
            {},
            "If the job still runs, stop it before it replaces its checkpoints: ddpjob suspend digits. ",
            id="named",
        ),
        pytest.param("OutOfMemory", failed("MaxRestartsExceeded"), "Raise the memory limit", id="after all restarts"),
        pytest.param("StorageFull", failed("StorageFull"), "Make room on the full volume", id="after one"),
        pytest.param("Evicted", failed("MaxDisruptionsExceeded"), "Find out who removes the pods: ", id="a limit"),
        pytest.param("OutOfMemory", BLOCKED, "Add the missing amounts ", id="first about an obstacle"),
    ],
)
def test_it_says_what_to_do(cause: str, more: dict[str, Any], advice: str) -> None:
    lines = told({}, {"incidents": [failure(1, cause=cause)], **more})
    assert next(line for line in lines if line.startswith("Advice")).startswith(f"Advice: {advice}")


@pytest.mark.parametrize(
    ("cause", "more"),
    [
        *(("Application", {}), ("ConfigError", {}), ("Preempted", {}), ("OutOfMemory", SUCCEEDED)),
        ("OutOfMemory", failed("DeadlineExceeded")),
    ],
    ids=[
        *("the log is named anyway", "the message says it", "nothing is to be done", "all is well in the end"),
        "the job has failed because of something else",
    ],
)
def test_advice_that_adds_nothing_is_left_out(cause: str, more: dict[str, Any]) -> None:
    assert [line for line in told({}, {"incidents": [failure(1, cause=cause)], **more}) if "Advice" in line] == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Progress",
            "Checkpoint",
            "Result",
            *NOT_NOW,
            "Backoff",
            "Deadline",
            "Avoids",
            "Incident",
            "Decided",
            "Incidents",
        ),
        *("Warning", "Loss", "Logs", "Status page", "Earlier incidents", "Conditions"),
    ],
)
def test_what_there_is_nothing_to_tell_of_has_no_line(name: str) -> None:
    past = {"backoffUntil": moment(-9), "avoidedNodeNames": [{"nodeName": "a", "until": moment(-9)}]}
    assert [line for line in told({}, past) if line.startswith(name)] == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00123, "1.2 ms"), (0.0999, "100 ms"), (0.1, "0.1 s"), (9.96, "10 s"), (99.4, "99 s"), (330.2, "5m30s")],
)
def test_the_time_of_a_step_is_told_in_its_own_unit(seconds: float, words: str) -> None:
    assert pace(seconds) == words


def test_each_incident_has_a_line_the_newest_first() -> None:
    lost = {"cause": "NodeLost", "message": "node b: gone", "action": "RestartFree", "node": 0, "rank": 0}
    incidents = [failure(2, **lost, time=moment(-30)), failure(1, **RULED, rank=15)]
    lines = told({}, {"incidents": incidents}, wide=True)
    start = lines.index("Incidents:")
    assert lines[start : start + 3] == [
        "Incidents:",
        "30s attempt 2 rank 0 NodeLost: node b: gone (RestartFree by default)",
        "90s attempt 1 rank 15 (node 1) Application: ValueError: no (Fail by spec.restart.rules[2])",
    ]


SAME = "ValueError: shard 3 is empty"
GIVEN_UP = {
    **condition("Failed", "MaxRestartsExceeded"),
    "message": f"Rank 1 failed: Application: {SAME}; no restarts left",
}


def test_an_exception_and_a_message_are_printed_once() -> None:
    incidents = [failure(attempt, message=SAME) for attempt in range(6, 0, -1)]
    status = {"state": "Failed", "message": GIVEN_UP["message"], "conditions": [GIVEN_UP], "incidents": incidents}
    lines = told({}, status)
    assert sum(SAME in line for line in lines) == 1
    assert "Incident: rank 1, exit code 7" in lines
    start = lines.index("Earlier incidents:")
    assert lines[start + 1 :] == [
        f"90s attempt {attempt} rank 1 the same (Restart by default)" for attempt in range(5, 0, -1)
    ]
    wide = told({}, status, wide=True)
    assert sum(SAME in line for line in wide) == 1 + 1 + 6 + 1, (
        "the message, the incident, all incidents, a condition"
    )
    assert any(line.startswith("Failed True 30s MaxRestartsExceeded: Rank 1 failed") for line in wide)


def test_what_an_earlier_incident_had_of_its_own_is_printed() -> None:
    incidents = [failure(3, message="b"), failure(2, message="a"), failure(1, message="a")]
    lines = told({}, {"message": "2 nodes running", "incidents": incidents})
    assert "Incident: rank 1, exit code 7: Application: b" in lines
    assert [line.split(" ", 5)[5] for line in lines[lines.index("Earlier incidents:") + 1 :]] == [
        "Application: a (Restart by default)",
        "the same (Restart by default)",
    ]


@pytest.mark.parametrize(
    ("kind", "said", "message", "shown"),
    [
        ("ProgressUnknown", "rank 0 does not answer", "2 nodes running", True),
        ("Blocked", "no quota", "no quota; it tries again", False),
        ("LossNotFinite", "The loss is NaN", "2 nodes running; the loss is NaN", False),
        ("Running", "2 nodes run", "something else", False),
    ],
)
def test_a_condition_that_warns_is_shown_unless_the_message_says_the_same(
    kind: str, said: str, message: str, *, shown: bool
) -> None:
    lines = told({}, {"message": message, "conditions": [{**condition(kind, "Any"), "message": said}]})
    assert (f"Warning: {kind}: {said}" in lines) is shown


def test_a_loss_that_only_the_log_has_is_shown_with_its_line() -> None:
    logged = LoggedProgress()
    logged.hear(0, "iter 7: loss 0.5")
    assert "Loss: 0.5 (from its log: iter 7: loss 0.5)" in told({}, {"progress": {"step": 7}}, logged=logged)
    assert not [line for line in told({}, {"progress": {"loss": 1}}, logged=logged) if line.startswith("Loss")]


@pytest.mark.parametrize(
    ("variable", "colour"),
    [({"FORCE_COLOR": "1"}, True), ({}, False), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
@pytest.mark.parametrize(("state", "code"), [("Running", 32), ("Failed", 31), ("Restarting", 33)])
def test_a_state_has_a_colour_only_on_a_terminal_that_wants_colours(
    state: str, code: int, variable: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, colour: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    shown = f"\x1b[{code}m{state}\x1b[0m" if colour else state
    assert f"State: {shown}" in told({}, {"state": state})


@pytest.mark.parametrize("wide", [False, True])
def test_on_a_cluster_an_event_does_not_repeat_the_message(wide: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001  A table.
    metadata = {"name": "digits", "namespace": "team", "uid": "uid-1", "creationTimestamp": moment(-60)}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    running = {**condition("Running", "AllPodsRunning"), "message": "1 node running"}
    status = {"state": "Running", "message": "1 node running", "attempt": 1, "conditions": [running]}
    status |= {"network": {"statusPort": 29501}, "bookkeeping": {"supervised": True}}
    events = [
        {"type": "Normal", "reason": reason, "message": message, "lastTimestamp": moment(-30)}
        for reason, message in (("Created", "1 node created"), ("Running", "1 node running"))
    ]
    events.append({"reason": "Wordless", "lastTimestamp": moment(-30)})
    jobs, _ = jobs_of({"metadata": metadata, "spec": spec, "status": status}, a_list(*events))
    assert status_there(jobs, "digits", "wide" if wide else None, everywhere=False) == 0
    said = capsys.readouterr().out
    assert said.count("1 node running") == (3 if wide else 1)
    assert "Created: 1 node created\n" in said
    assert re.search(r"^ +\d+d +Wordless$", said, re.MULTILINE), "Kubernetes leaves out texts that are empty"
    assert "Logs:         ddpjob logs digits -n team\n" in said
    assert "History:      none: it has neither a history.path nor a checkpoint\n" in said
    assert re.search(
        r"Status page:  kubectl port-forward -n team pod/digits-0-\w{5} 29501  # http://127\.0\.0\.1:29501/\n", said
    )


@pytest.mark.parametrize("name", [None, "digits"])
def test_on_a_cluster_a_job_is_as_old_as_kubectl_says_also_when_it_was_resumed(
    name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    born = (now - timedelta(days=2.5)).isoformat()
    metadata = {"name": "digits", "namespace": "team", "uid": "uid-1", "creationTimestamp": born}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    resumed = {"state": "Running", "message": "-", "startTime": (now - timedelta(seconds=60)).isoformat()}
    job = {"metadata": metadata, "spec": spec, "status": resumed}
    jobs, _ = jobs_of(*([a_list(job)] if name is None else [job, a_list()]))
    assert status_there(jobs, name, everywhere=False) == 0
    assert " 2d" in capsys.readouterr().out


@pytest.mark.parametrize(
    "status",
    [
        STARTING | {"state": "Suspended"},
        STARTING | {"bookkeeping": {}},
        STARTING | {"conditions": [*STARTING["conditions"], condition("ProgressUnknown", "SupervisorSilent")]},
        STARTING | {"conditions": [*STARTING["conditions"], condition("AwaitingFirstStep", "NoStepSeen")]},
    ],
    ids=["does not run", "has no supervisor", "is not heard", "is said to be late"],
)
def test_the_first_step_is_not_said_to_be_awaited_of_a_job_that(status: dict[str, Any]) -> None:
    assert "waiting for the first step" not in " ".join(told({}, status))


@pytest.mark.parametrize(("length", "shown"), [(200, "x" * 200), (201, f"{'x' * 200}…")])
def test_of_a_long_result_the_beginning_is_shown(length: int, shown: str) -> None:
    assert any(line.endswith(shown) for line in told({}, {"result": "x" * length}))


RANK = {"rank": 0, "node": 0, "step": 12, "activity": "training", "stepSeconds": 0.02, "seconds": {}}
HOSTILE = "[bold]no[/bold]\x1b[2J\nState:"


def test_on_a_cluster_describe_shows_the_spec_the_ranks_and_the_events(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"name": "digits", "namespace": "team", "uid": "uid-1", "creationTimestamp": moment(-60)}
    trainer = {"name": "trainer", "image": HOSTILE, "env": [{"name": "TOKEN", "value": "not-to-be-seen"}]}
    spec = {"nodes": 1, "restart": {"maxRestarts": 2}, "template": {"spec": {"containers": [trainer]}}}
    status = {"state": "Running", "message": "1 node running", "attempt": 1, "nodes": 1, "procsPerNode": 1}
    status |= {"bookkeeping": {"supervised": True}, "conditions": [condition("Running", "AllNodesRunning")]}
    page = {"ranks": [RANK | {"transport": HOSTILE}]}
    monkeypatch.setattr("ddpjob_operator.cli.cluster.job_status.pods_and_page", lambda *_: ([], page, ""))
    event = {"type": "Normal", "reason": "Created", "message": "1 node created", "lastTimestamp": moment(-30)}
    jobs, _ = jobs_of({"metadata": metadata, "spec": spec, "status": status}, a_list(event))
    assert status_there(jobs, "digits", FULL, everywhere=False) == 0
    said = capsys.readouterr().out
    parts = ("State:", "Conditions:", "Spec:", "restart.maxRestarts  2", "Defaults:", "Ranks:", "Events:", "Created")
    assert sorted(parts, key=said.index) == list(parts)
    assert re.search(r"^0 +0 +12 +20 ms", said, re.MULTILINE)
    assert re.search(r"^  trainer\.image +\[bold\]no\[/bold\]\\x1b\[2J\\nState:$", said, re.MULTILINE)
    assert re.search(r"^  trainer\.env +TOKEN$", said, re.MULTILINE)
    assert "not-to-be-seen" not in said
    assert "\x1b" not in said


def test_on_a_cluster_describe_says_why_ranks_are_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"name": "digits", "namespace": "team", "uid": "uid-1", "creationTimestamp": moment(-60)}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    monkeypatch.setattr("ddpjob_operator.cli.cluster.job_status.pods_and_page", lambda *_: ([], None, "you may not"))
    status = {"state": "Running", "message": "1 node running", "attempt": 1, "nodes": 1, "procsPerNode": 1}
    jobs, _ = jobs_of({"metadata": metadata, "spec": spec, "status": status}, a_list())
    assert status_there(jobs, "digits", FULL, everywhere=False) == 0
    assert "What single ranks do is not shown: you may not\n" in capsys.readouterr().out


def test_describe_of_a_run_shows_its_spec(digits: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_here(Runs(digits.root.parent), "digits", FULL) == 0
    said = capsys.readouterr().out
    parts = ("Name:         digits", "Spec:", "trainer.image", "Defaults:     nodes 1")
    assert sorted(parts, key=said.index) == list(parts)


@pytest.mark.parametrize("wide", [False, True])
def test_secrets_in_the_messages_of_incidents_are_masked(*, wide: bool) -> None:
    said = "LoginError: refused token=hunter2hunter2"
    failures = [failure(2, message=said), failure(1, message=f"{said}; password=hunter3hunter3")]
    lines = told(
        {}, {"state": "Failed", "message": f"Rank 1 failed: Application: {said}", "incidents": failures}, wide=wide
    )
    assert "hunter" not in "\n".join(lines)
    assert sum("token=•••" in line for line in lines) == (4 if wide else 2)
