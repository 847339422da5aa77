"""What is done about an incident: the user's rules, first match first, and the defaults."""

from typing import Any

import pytest
from ddpjob_operator.api import Cause, Incident, RestartAction
from ddpjob_operator.engine.incidents.judgement import BY_RULE_ONLY

from tests.support.exit_codes import among, other_than

from .builders import Moment, a_job
from .tables import Table, rows, verdict

Rule = dict[str, Any]
RESTART, FREE, FAIL = RestartAction

PEER = "RuntimeError: [gloo] Connection closed by peer"


def ruled(*rules: Rule, **restart: Any) -> Moment:
    """A gang of two that runs under these rules, and starts again without a wait."""
    return a_job(nodes=2, restart={"rules": list(rules), "backoffSeconds": 0, **restart}).running()


def rule(action: RestartAction, **matches: Any) -> Rule:
    return {**matches, "action": str(action)}


three_is_fatal = ruled(rule(FAIL, exitCodes=among(3)))
sick_node = ruled(rule(FREE, exitCodes=among(*range(64, 79)), causes=["Application"]), maxRestarts=0)
by_signal = ruled(rule(FAIL, signals=["SIGBUS", "SIGSEGV"]))
all_fields = ruled(rule(FREE, exitCodes=among(139), signals=["SIGSEGV"], causes=["Application"]))
ordered = ruled(
    rule(FREE, exitCodes=among(3)), rule(FAIL, exitCodes=among(*range(1, 10))), rule(RESTART, causes=["Application"])
)
no_disruption = ruled(rule(FAIL, causes=["Preempted", "Evicted"]), rule(RESTART, causes=["NodeLost"]))

DISK = "Usage of EmptyDir volume exceeds the limit"
TABLE: Table = {
    # by exit code
    "an exit code that a rule names is what it says": (
        three_is_fatal.fails(0, code=3, message="no such data"),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 3: no such data (spec.restart.rules[0] says Fail)",
    ),
    "another is not": (
        three_is_fatal.fails(0, code=4),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 4; restart 1 of 6 in 0.0 s",
    ),
    "a rank that ended without an exit code has none that a rule could name": (
        ruled(rule(FAIL, exitCodes=among(*range(1, 256)))).fails(0, code=None, reason=""),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: ended without an exit code; restart 1 of 6 in 0.0 s",
    ),
    "of several values the first": (
        sick_node.fails(0, code=64),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 64; restart (not counted) in 0.0 s",
    ),
    "and the last of them": (
        sick_node.fails(0, code=78),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 78; restart (not counted) in 0.0 s",
    ),
    "but not what is below": (
        sick_node.fails(0, code=63),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 63; no restarts left (maxRestarts: 0)",
    ),
    "nor what is above": (
        sick_node.fails(0, code=79),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 79; no restarts left (maxRestarts: 0)",
    ),
    "one of several is enough": (
        ruled(rule(FREE, exitCodes=among(3, *range(10, 13), 20))).fails(0, code=11),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 11; restart (not counted) in 0.0 s",
    ),
    "all but those that a rule names": (
        ruled(rule(FAIL, exitCodes=other_than(3))).fails(0, code=4),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 4 (spec.restart.rules[0] says Fail)",
    ),
    "and these are not": (
        ruled(rule(FAIL, exitCodes=other_than(3))).fails(0, code=3),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 3; restart 1 of 6 in 0.0 s",
    ),
    "nor is a rank that ended without an exit code": (
        ruled(rule(FAIL, exitCodes=other_than(3))).fails(0, code=None, reason=""),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: ended without an exit code; restart 1 of 6 in 0.0 s",
    ),
    # by signal
    "a signal that a rule names is what it says": (
        by_signal.fails(0, code=128 + 7),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: killed by SIGBUS (spec.restart.rules[0] says Fail)",
    ),
    "or one of several": (
        by_signal.fails(0, code=128 + 11),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: killed by SIGSEGV (spec.restart.rules[0] says Fail)",
    ),
    "another is not: SIGABRT": (
        by_signal.fails(0, code=128 + 6),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: killed by SIGABRT; restart 1 of 6 in 0.0 s",
    ),
    "nor is an exit code of the same number": (
        by_signal.fails(0, code=7),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 7; restart 1 of 6 in 0.0 s",
    ),
    "a signal's exit code is matched as one too": (
        ruled(rule(FREE, exitCodes=among(139))).fails(0, code=139),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: killed by SIGSEGV; restart (not counted) in 0.0 s",
    ),
    # by cause
    "a cause that a rule names is what it says": (
        no_disruption.disrupted(1, "PreemptionByScheduler", "preempted"),
        "-1.0/5",
        "Running",
        "Stopping 2 pods: Rank 1 failed: Preempted: preempted (spec.restart.rules[0] says Fail)",
    ),
    "or one of several causes": (
        no_disruption.disrupted(1, "EvictionByEvictionAPI", "evicted"),
        "-1.0/5",
        "Running",
        "Stopping 2 pods: Rank 1 failed: Evicted: evicted (spec.restart.rules[0] says Fail)",
    ),
    "a rule makes a disruption cost": (
        no_disruption.disrupted(1, "DeletionByTaintManager", "deleting").fails(1, code=143),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: NodeLost: deleting; restart 1 of 6 in 0.0 s",
    ),
    "a cause that none names is as by default": (
        no_disruption.deleted_by_hand(1),
        "-1.0/full",
        "Restarting",
        "Rank 1 failed: PodDeleted: the pod is being deleted; restart (not counted) in 0.0 s",
    ),
    "a rule lets a job try again where it would not by default": (
        ruled(rule(RESTART, causes=["ConfigError"])).reports(0, cause="ConfigError", message="no data yet"),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: ConfigError: no data yet; restart 1 of 6 in 0.0 s",
    ),
    # together
    "every field that a rule has must match: they do": (
        all_fields.fails(0, code=139),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: killed by SIGSEGV; restart (not counted) in 0.0 s",
    ),
    "the cause does not": (
        all_fields.fails(0, code=139, reason="OOMKilled"),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: OutOfMemory: killed by SIGSEGV; restart 1 of 6 in 0.0 s",
    ),
    "the exit code and the signal do not": (
        all_fields.fails(0, code=138),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: killed by SIGUSR1; restart 1 of 6 in 0.0 s",
    ),
    "the exit code alone does not": (
        ruled(rule(FREE, exitCodes=among(1), signals=["SIGSEGV"])).fails(0, code=139),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: killed by SIGSEGV; restart 1 of 6 in 0.0 s",
    ),
    "the first rule that matches decides": (
        ordered.fails(0, code=3),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 3; restart (not counted) in 0.0 s",
    ),
    "and the second where the first does not": (
        ordered.fails(0, code=4),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 4 (spec.restart.rules[1] says Fail)",
    ),
    "and the last where no other does": (
        ordered.fails(0, code=10),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 10; restart 1 of 6 in 0.0 s",
    ),
    "it is the rank that failed first whose end is matched": (
        three_is_fatal.fails(0, code=3, message=PEER, at=-9).fails(1, code=4, message="no"),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Application: exit code 4: no (1 more rank failed with it); restart 1 of 6 in 0.0 s",
    ),
    "a rule that restarts does so within the budget": (
        ruled(rule(RESTART, exitCodes=among(3)), maxRestarts=0).fails(0, code=3),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 3; no restarts left (maxRestarts: 0)",
    ),
    "a run that has diverged is not tried again": (
        ruled(rule(RESTART, causes=["Application"])).reports(0, cause="Diverged", message="the loss is NaN"),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Diverged: the loss is NaN",
    ),
    "unless a rule says so": (
        ruled(rule(RESTART, causes=["Diverged"])).reports(0, cause="Diverged", message="the loss is NaN"),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Diverged: the loss is NaN; restart 1 of 6 in 0.0 s",
    ),
    "rules that change count for the next incident": (
        three_is_fatal.asks(restart={"backoffSeconds": 0}).fails(0, code=3),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 3; restart 1 of 6 in 0.0 s",
    ),
    "checkpoints that cannot be read now are tried again, and cost nothing": (
        ruled().reports(0, cause="StorageUnavailable", message="stale file handle"),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: StorageUnavailable: stale file handle; restart (not counted) in 0.0 s",
    ),
    "those that cannot be used are not": (
        ruled().reports(0, cause="CheckpointUnusable", message="its format is 2"),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: CheckpointUnusable: its format is 2",
    ),
    # defaults that fail fast
    "an image that does not exist ends the job by default": (
        a_job(nodes=2).created().placed(0, 1).waits(1, "ImagePullBackOff", "manifest unknown"),
        "-1.0/5 -1.1/5",
        "Starting",
        "Stopping 2 pods: Rank 1 failed: ImageError: ImagePullBackOff: manifest unknown",
    ),
    "but not that of a job that has run with it: its registry may have had a bad moment": (
        ruled().fails(0, 1).ready_again().settled().placed(0, 1).waits(1, "ImagePullBackOff", "manifest unknown"),
        "-2.0/5 -2.1/5",
        "Restarting",
        "Rank 1 failed: ImageError: ImagePullBackOff: manifest unknown; restart 2 of 6 in 0.0 s",
    ),
}


@rows(TABLE)
def test_rules(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


two = a_job(nodes=2).running()
starting = a_job(nodes=2).created().placed(0, 1)
DEFAULTS: dict[Cause, tuple[Moment, RestartAction]] = {
    Cause.APPLICATION: (two.fails(0), RESTART),
    Cause.OUT_OF_MEMORY: (two.fails(0, code=137, reason="OOMKilled"), RESTART),
    Cause.STORAGE_EXCEEDED: (two.evicted_by_kubelet(0, DISK, disruption=False), RESTART),
    Cause.PREFLIGHT_FAILED: (two.reports(0, cause="PreflightFailed"), RESTART),
    Cause.DEVICE_FAILED: (two.reports(0, cause="DeviceFailed"), FREE),
    Cause.STORAGE_UNAVAILABLE: (two.reports(0, cause="StorageUnavailable"), FREE),
    Cause.CHECKPOINT_UNUSABLE: (two.reports(0, cause="CheckpointUnusable"), FAIL),
    Cause.STALLED: (two.reports(0, cause="Stalled"), RESTART),
    Cause.PEER_LOST: (two.fails(0, message=PEER, at=-10), RESTART),
    Cause.STOPPED: (two.fails(0, code=205), RESTART),
    Cause.POD_DELETED: (two.vanishes(0), FREE),
    Cause.EVICTED: (two.disrupted(0, "EvictionByEvictionAPI"), FREE),
    Cause.PREEMPTED: (two.disrupted(0, "PreemptionByScheduler"), FREE),
    Cause.NODE_LOST: (two.node_dies(0), FREE),
    Cause.CONFIG_ERROR: (two.reports(0, cause="ConfigError"), FAIL),
    Cause.DIVERGED: (two.reports(0, cause="Diverged"), FAIL),
    Cause.STORAGE_FULL: (two.reports(0, cause="StorageFull"), FAIL),
    Cause.IMAGE_ERROR: (starting.waits(0, "InvalidImageName", "a b"), FAIL),
    Cause.START_ERROR: (starting.fails(0, code=128, reason="StartError", message="no such file"), FAIL),
}


def failure(moment: Moment) -> Incident:
    found = moment.decided().status.last_incident
    assert found is not None, "no incident was seen"
    return found


def test_each_cause_has_a_default_or_is_nothing_without_a_rule() -> None:
    assert DEFAULTS.keys() | BY_RULE_ONLY == {*Cause}


@pytest.mark.parametrize("cause", DEFAULTS)
def test_by_default(cause: Cause) -> None:
    moment, action = DEFAULTS[cause]
    found = failure(moment)
    assert (found.cause, found.action, found.rule) == (cause, action, "default")


@pytest.mark.parametrize(("rank", "code", "said"), [(0, 3, "[0]"), (0, 4, "[1]"), (1, 10, "[2]")])
def test_the_status_says_which_rule_decided(rank: int, code: int, said: str) -> None:
    assert failure(ordered.fails(rank, code=code)).rule == f"spec.restart.rules{said}"


def test_a_job_that_a_rule_ends_has_the_cause_as_its_reason() -> None:
    moment = three_is_fatal.fails(0, code=3).settled().gone().settled()
    assert moment.status.conditions[-1].reason == "Application"
    assert moment.status.restarts == 0
