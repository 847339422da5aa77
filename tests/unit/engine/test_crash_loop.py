"""Trying again does not help, whatever is left of the budget: three failures in a row that get no further, or the
same error twice before any step."""

from dataclasses import replace

import pytest
from ddpjob_operator.api import Cause, ConditionType, RestartAction
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.manifests.names import pod_name

from tests.support.exit_codes import among

from .builders import Moment, a_job, told
from .tables import Table, rows, verdict

start = a_job(nodes=2, restart={"maxRestarts": 9, "backoffSeconds": 0}).running()


def fails(*steps: int | None, moment: Moment = start) -> Moment:
    """Rank 1 has failed after each of these steps; the last time it was not answered yet."""
    *answered, last = steps
    for step in answered:
        moment = fails_after(moment, step).restarted()
    return fails_after(moment, last)


def fails_after(moment: Moment, step: int | None) -> Moment:
    """Rank 1 fails after this step; after a minute where it does not say after which."""
    return moment.after(60 if step is None else 0).reports(1, message="no", step=step)


def free_first(moment: Moment) -> Moment:
    return moment.vanishes(0).restarted()


by_rule = a_job(
    nodes=2, restart={"backoffSeconds": 0, "rules": [{"causes": ["Application"], "action": "RestartFree"}]}
).running()
free_by_code = a_job(
    nodes=2,
    restart={"maxRestarts": 9, "backoffSeconds": 0, "rules": [{"exitCodes": among(3), "action": "RestartFree"}]},
).running()
twice = fails(7, 7).restarted()


def goes_on(attempt: int, restart: int, gone: str = "") -> tuple[str, str, str]:
    """The gang starts again; `gone` is the pod that does not have to stay any more."""
    plan = f"{gone} -{attempt}.0/5".strip()
    return plan, "Restarting", f"Rank 1 failed: Application: no; restart {restart} of 9 in 0.0 s"


def the_end(attempt: int, step: int) -> tuple[str, str, str]:
    why = f"Rank 1 failed: Application: no; three times in a row training got no further than step {step}"
    return f"-{attempt}.0/5", "Running", f"Stopping 1 pod: {why}"


TABLE: Table = {
    "twice at the same step may be chance": (fails(7, 7), *goes_on(2, 2)),
    "three times is not": (fails(7, 7, 7), *the_end(3, 7)),
    "nor at the very first step": (fails(0, 0, 0), *the_end(3, 0)),
    "or further back each time": (fails(7, 6, 5), *the_end(3, 7)),
    "or back and forth, but no further than at first": (fails(7, 5, 7), *the_end(3, 7)),
    "also if the first seems to be from before the start: kubelets tell whole seconds": (
        fails(7, moment=start.after(-0.9))
        .restarted()
        .after(2)
        .reports(1, message="no", step=7)
        .restarted()
        .reports(1, message="no", step=7),
        *the_end(3, 7),
    ),
    "one step further is progress": (fails(7, 7, 8), *goes_on(3, 3)),
    "and so was one step further in between": (fails(7, 8, 7), *goes_on(3, 3)),
    "after progress three more are needed: two": (fails(7, 7, 8, 8), *goes_on(4, 4, "-1.1/5")),
    "three": (fails(7, 7, 8, 8, 8), *the_end(5, 8)),
    # who does not say how far it got
    "attempts that do not say how far they got tell nothing": (fails(None, None, None), *goes_on(3, 3)),
    "one that does not among others neither": (fails(7, None, 7), *goes_on(3, 3)),
    "nor the last": (fails(7, 7, None), *goes_on(3, 3)),
    "and then begins a new row": (fails(7, 7, None, 7, 7), *goes_on(5, 5, "-2.1/5")),
    "a peer that lost the rank may say it in its place": (
        twice.fails(1, message="ValueError: no").reports(0, cause="PeerLost", step=7),
        "",
        "Failed",
        (
            "Rank 1 failed: Application: ValueError: no (1 more rank failed with it); "
            "three times in a row training got no further than step 7"
        ),
    ),
    # what is not counted
    "a disruption is no failure": (
        twice.vanishes(1),
        "-3.0/5",
        "Restarting",
        "Rank 1 failed: PodDeleted: the pod vanished; restart (not counted) in 0.0 s",
    ),
    "and one in between breaks the row": (fails(7, moment=free_first(twice)), *goes_on(4, 3, "-1.1/5")),
    "what a rule says is free is none either": (
        fails(7, 7, 7, moment=by_rule),
        "-3.0/5",
        "Restarting",
        "Rank 1 failed: Application: no; restart (not counted) in 0.0 s",
    ),
    "nor does it count between two others": (
        free_by_code.reports(1, message="no", step=7)
        .restarted()
        .reports(1, code=3, message="no", step=7)
        .restarted()
        .reports(1, message="no", step=7),
        *goes_on(3, 2),
    ),
    # what starts over
    "suspension begins a new row: the cause may have been mended": (
        fails(7, moment=twice.after(1).suspended().asks(suspend=False).running()),
        *goes_on(4, 3),
    ),
    "in which three are three": (
        fails(7, 7, 7, moment=twice.after(1).suspended().asks(suspend=False).running()),
        *the_end(6, 7),
    ),
    "a resize begins none": (
        fails(7, moment=twice.asks(nodes=3).restarted().asks(nodes=2).restarted()),
        *the_end(5, 7),
    ),
    # with the budget
    "a budget that is used up before is told instead": (
        fails(7, 7, 7, moment=start.asks(restart={"maxRestarts": 2, "backoffSeconds": 0})),
        "-3.0/5",
        "Running",
        "Stopping 1 pod: Rank 1 failed: Application: no; no restarts left (maxRestarts: 2)",
    ),
}


@rows(TABLE)
def test_crash_loops(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_a_crash_loop_has_its_own_reason_and_is_in_the_history_three_times() -> None:
    failed = fails(7, 7, 7).settled().gone().settled()
    assert failed.status.conditions[-1].reason == "CrashLoop"
    assert [failure.step for failure in failed.status.incidents] == [7, 7, 7]
    assert failed.status.restarts == 2


NO_MODULE = "ModuleNotFoundError: No module named 'httpx'"


def raises(moment: Moment, error: str, rank: int = 1, **how: object) -> Moment:
    """A rank ends by an exception, as a plain Python program does."""
    traceback = f"Traceback (most recent call last):\n  File x\n{error}\n"
    return moment.fails(rank, message=traceback, **how)


def twice_raises(error: str) -> Moment:
    """Each time until all pods that may know more were heard out."""
    return raises(raises(start, error).after(10).restarted(), error).after(10)


HOPELESS = {
    "a module that is missing, whatever its name": NO_MODULE,
    "a name that a module has not": "ImportError: cannot import name 'connect' from 'db' (db.py)",
    "a text that is no Python": "SyntaxError: invalid syntax",
    "a file that is missing": "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    "a script that is missing": "python: can't open file '/app/trian.py': [Errno 2] No such file or directory",
    "a file that may not be read": "PermissionError: [Errno 13] Permission denied: '/data/train.bin'",
    "a terminal that a rank does not have": "EOFError: EOF when reading a line",
    "a backend without its device": "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    "an argument that is wrong": "ValueError: nccl requires a CUDA device",
    "a program that it calls": "RuntimeError: prepare.sh ended with exit code 1",
}


@pytest.mark.parametrize("error", HOPELESS.values(), ids=HOPELESS)
def test_the_same_error_twice_before_any_step_is_a_crash_loop(error: str) -> None:
    failed = twice_raises(error).settled().gone().settled()
    condition = failed.condition(ConditionType.FAILED)
    why = "the same error twice in a row before the first step: another restart would not help"
    said = f"Rank 1 failed: Application: {error}; {why}"
    assert (condition.reason, condition.message, failed.status.message) == ("CrashLoop", said, said)
    assert failed.status.restarts == 1


PASSING = {
    "of a network": "ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded",
    "of a name server": "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "of a server": "urllib.error.HTTPError: HTTP Error 503: Service Unavailable",
    "of a wait": "TimeoutError: timed out",
    "of a port": "OSError: [Errno 98] Address already in use",
    "of a device": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "of a device that another process has": "RuntimeError: CUDA-capable device(s) is/are busy or unavailable",
    "of its memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "of the host's memory": "OSError: [Errno 12] Cannot allocate memory",
    "of a disk": "OSError: [Errno 5] Input/output error: '/data/train.bin'",
    "of a shared disk": "OSError: [Errno 116] Stale file handle: '/data/train.bin'",
    "of a store": "RuntimeError: Connection closed by peer",
    "that torchrun does not tell": "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
}


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_an_error_that_may_pass_is_tried_again(error: str) -> None:
    assert verdict(twice_raises(error))[1] == "Restarting"


def test_a_supervisor_that_is_killed_at_the_start_may_not_be_the_next_time() -> None:
    supervised = {"containers": [{"name": "trainer", "image": "any", "command": ["ddpjob-supervise", "train.py"]}]}
    moment = a_job(nodes=2, restart={"backoffSeconds": 0}, template={"spec": supervised}).running()
    again = moment.fails(1, code=137).after(10).restarted().fails(1, code=137).after(10)
    assert "its supervisor was killed by SIGKILL" in again.settled().status.incidents[0].message
    assert verdict(again)[1] == "Restarting"


USAGE = "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 0.1\n"


BAD_BATCH = "IndexError: index 7 is out of range"


SAID_OF_BATCH = {"cause": "Application", "message": BAD_BATCH}


def counts(moment: Moment, steps: int | None, error: str = BAD_BATCH, **how: object) -> Moment:
    """Rank 1 raises an error after so many steps of its attempt, which its supervisor has counted."""
    return moment.after(60).reports(1, **{**SAID_OF_BATCH, "message": error, "stepsSinceRestart": steps, **how})


def counts_again(*steps: int | None, moment: Moment = start) -> Moment:
    for nth in steps[:-1]:
        moment = counts(moment, nth).restarted()
    return counts(moment, steps[-1])


def rules(action: RestartAction, **limits: int) -> Moment:
    rules = [{"causes": ["Application"], "action": str(action)}]
    return a_job(nodes=2, restart={"backoffSeconds": 0, "maxRestarts": 9, "rules": rules, **limits}).running()


ALIKE: dict[str, tuple[Moment, str]] = {
    "three times the same": (counts_again(120, 120, 120), "CrashLoop"),
    "after none": (counts_again(0, 0, 0), "CrashLoop"),
    "on any rank": (
        counts_again(120, 120).restarted().after(60).reports(0, **{**SAID_OF_BATCH, "stepsSinceRestart": 120}),
        "CrashLoop",
    ),
    "twice": (counts_again(120, 120), ""),
    "after more steps": (counts_again(120, 120, 121), ""),
    "after fewer steps": (counts_again(120, 120, 119), ""),
    "after another number in between": (counts_again(120, 7, 120, 120), ""),
    "in other words": (counts(counts_again(120, 120).restarted(), 120, "IndexError: index 8 is out of range"), ""),
    "an error that may pass": (
        counts(counts(counts(start, 5, GONE := "OSError: timed out").restarted(), 5, GONE).restarted(), 5, GONE),
        "",
    ),
    "where steps are not counted": (counts_again(None, None, None), ""),
    "a disruption in between": (counts(counts_again(120, 120).restarted().vanishes(0).restarted(), 120), ""),
    "a suspension in between": (
        counts(counts_again(120, 120).restarted().after(1).suspended().asks(suspend=False).running(), 120),
        "",
    ),
    "by a rule": (counts_again(120, 120, 120, moment=rules(RestartAction.RESTART)), ""),
    "by a rule, at no cost": (counts_again(120, 120, 120, moment=rules(RestartAction.RESTART_FREE)), ""),
    "killed": (
        counts(
            counts(counts(start, 5, KILL := "killed by SIGKILL").restarted(), 5, KILL).restarted(), 5, KILL, code=137
        ),
        "",
    ),
}


@pytest.mark.parametrize(("moment", "reason"), ALIKE.values(), ids=ALIKE)
def test_the_same_error_after_as_many_counted_steps_is_a_crash_loop_at_the_third_time(
    moment: Moment, reason: str
) -> None:
    ended = moment.settled().gone().settled()
    failed = ended.status.condition(ConditionType.FAILED)
    assert (failed.reason if failed else "") == reason


def test_an_error_that_comes_after_as_many_steps_is_told_with_their_number() -> None:
    failed = counts_again(120, 120, 120).settled().gone().settled()
    why = "the same error after 120 steps of each of the last three attempts"
    assert failed.status.message == f"Rank 1 failed: Application: {BAD_BATCH}; {why}"
    assert [incident.steps_since_restart for incident in failed.status.incidents] == [120] * 3
    assert failed.status.restarts == 2


NO_WORD = '{"cause": "Application", "message": "ended with exit code 2"}'


def misused(moment: Moment, usage: str = USAGE, **how: object) -> Moment:
    """A rank finds its arguments wrong, once its imports are done: here after nine minutes."""
    return moment.after(540).fails(1, **{"code": 2, "message": usage, **how})


@told
def has_stepped(moment: Moment) -> Moment:
    """Ten seconds later a step is finished, and heard of."""
    later = moment.after(10)
    return later.hears(progress={"step": 1, "lastStepTime": later.snapshot.now.isoformat()})


misused_once = misused(start).restarted()
once = raises(start, NO_MODULE).restarted()
NO_STEP = {"step": 0, "lastStepTime": None}
with_steps = start.hears(progress=NO_STEP)
in_place = a_job(nodes=2, restart={"maxRestarts": 9, "backoffSeconds": 0}).running().hears()
SAID = {"node": 1, "cause": "Application", "exitCode": 1, "message": NO_MODULE}


@told
def told_in_place(moment: Moment) -> Moment:
    """Its supervisors have answered the error by a restart in place, and the next attempt is under way."""
    attempt = moment.status.attempt
    time = moment.snapshot.now.isoformat()
    incident = {**SAID, "attempt": attempt, "time": time}
    return moment.hears(attempt=attempt + 1, incidents=[incident])


@told
def replaced_alone(moment: Moment, rank: int) -> Moment:
    """A rank has another pod now, and the others have not."""
    job, incarnations = moment.snapshot.job, moment.status.bookkeeping.incarnations.replaced((rank,))
    new = incarnations.of(rank)
    pods = tuple(
        replace(pod, incarnation=new, name=pod_name(job, rank, new)) if pod.node == rank else pod
        for pod in moment.pods
    )
    status = changed(moment.status, incarnations=incarnations)
    return moment.but(job=job.with_status(status), pods=pods)


def left_to_us(moment: Moment) -> Moment:
    """Its supervisors do not try again in place, and each pod says why it ends."""
    report = {**SAID, "exception": "ModuleNotFoundError", "message": "No module named 'httpx'"}
    return moment.reports(1, **report).reports(0, code=204, cause="PeerLost", message="rank 1 failed: Application")


def without(action: RestartAction) -> Moment:
    rules = [{"causes": [str(Cause.APPLICATION)], "action": str(action)}]
    return a_job(nodes=2, restart={"backoffSeconds": 0, "maxRestarts": 9, "rules": rules}).running()


NO_REASON = "killed by SIGABRT"
MISMATCH = f"op.preamble.length <= op.nbytes. 2 vs 1 ({NO_REASON})"


def crashes(moment: Moment, message: str) -> Moment:
    return moment.reports(1, code=134, cause="Application", message=message)


supervised = a_job(
    nodes=2,
    restart={"maxRestarts": 9, "backoffSeconds": 0},
    template={"spec": {"containers": [{"name": "trainer", "image": "trainer:1", "command": ["ddpjob-supervise"]}]}},
).running()

NEAR_MISSES: dict[str, Moment] = {
    "once": raises(start, NO_MODULE),
    "another error": raises(once, "ModuleNotFoundError: No module named 'y'"),
    "another error in between": raises(raises(once, "ValueError: no").restarted(), NO_MODULE),
    "a disruption in between": raises(once.vanishes(0).restarted(), NO_MODULE),
    "after a minute of running": raises(once.after(60), NO_MODULE),
    "the first time after a minute of running": raises(raises(start.after(60), NO_MODULE).restarted(), NO_MODULE),
    "after a step": raises(start, "ValueError: no").restarted().reports(1, message="ValueError: no", step=1),
    "the first time after a step": raises(
        start.reports(1, message="ValueError: no", step=1).restarted(), "ValueError: no"
    ),
    "after a step that only its supervisor has told of": raises(has_stepped(once), NO_MODULE),
    "after an hour in which nobody heard it": raises(
        raises(with_steps, NO_MODULE).restarted().awaits_report().after(3600), NO_MODULE
    ),
    "without a word": start.fails(1, code=75).restarted().fails(1, code=75),
    "a usage error, once": misused(start),
    "another usage error": misused(misused_once, USAGE.replace("--lrr", "--rl")),
    "exit code 2 after longer than any imports": misused(misused(start.after(61)).restarted().after(61)),
    "exit code 2 without a word": misused(misused(start, "").restarted(), ""),
    "exit code 2 under a supervisor, which knows no word of it": misused(
        misused(start, NO_WORD).restarted(), NO_WORD
    ),
    "exit code 2 for a network": misused(misused(start, "no connection").restarted(), "no connection"),
    "exit code 2 after a step": misused(has_stepped(misused_once)),
    "exit code 2 after a step of which another operator has heard": misused(
        has_stepped(misused_once).settled().awaits_report()
    ),
    "a usage error that is somebody else's": misused(misused(start, code=3).restarted(), code=3),
    "a usage error before and after a suspension": misused(
        misused_once.after(2).suspended().asks(suspend=False).running()
    ),
    "by a signal": start.fails(1, code=139).restarted().fails(1, code=139),
    "by a signal, which its supervisor knows no reason for": crashes(
        crashes(start, NO_REASON).restarted(), NO_REASON
    ),
    "killed": start.fails(1, code=137).restarted().fails(1, code=137),
    "killed with its supervisor": supervised.fails(1, code=137).restarted().fails(1, code=137),
    "out of memory": raises(raises(start, NO_MODULE, reason="OOMKilled").restarted(), NO_MODULE, reason="OOMKilled"),
    "a preflight that does not pass now": start.reports(1, cause="PreflightFailed", message="slow")
    .restarted()
    .reports(1, cause="PreflightFailed", message="slow"),
    "a lost peer": start.reports(1, cause="PeerLost", message="rank 0 is gone")
    .after(10)
    .restarted()
    .reports(1, cause="PeerLost", message="rank 0 is gone")
    .after(10),
    "an init container": start.fails(1, code=None, reason="InitContainerFailed", message="init container a: no")
    .restarted()
    .fails(1, code=None, reason="InitContainerFailed", message="init container a: no"),
    "a suspension in between": raises(once.after(2).suspended().asks(suspend=False).running(), NO_MODULE),
    "on another rank in the same gang": raises(told_in_place(in_place).settled(), NO_MODULE, rank=0),
    "on another rank, where only the first one has a new pod": raises(
        replaced_alone(told_in_place(in_place).settled(), 1), NO_MODULE, rank=0
    ),
    "on the same rank, where another one has a new pod": raises(
        replaced_alone(told_in_place(in_place).settled(), 0), NO_MODULE
    ),
    "on another rank, where the first one has failed in a second pod of its own": raises(
        told_in_place(replaced_alone(in_place, 1)).settled(), NO_MODULE, rank=0
    ),
    "or in a third one": raises(
        told_in_place(replaced_alone(replaced_alone(in_place, 1), 1)).settled(), NO_MODULE, rank=0
    ),
    "on another rank, in other words": raises(once, f"{NO_MODULE} on rank 0", rank=0),
    "once under supervisors, which leave it to the operator": left_to_us(in_place),
    "a rule that says to try again": raises(raises(without(RestartAction.RESTART), NO_MODULE).restarted(), NO_MODULE),
    "a rule that says so at no cost": raises(
        raises(without(RestartAction.RESTART_FREE), NO_MODULE).restarted(), NO_MODULE
    ),
}


@pytest.mark.parametrize("moment", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_a_near_miss_is_tried_again(moment: Moment) -> None:
    assert moment.decided().status.is_true(ConditionType.RESTARTING)
    assert moment.decided().settled().gone().settled().status.state != "Failed"


LOOPS: dict[str, Moment] = {
    "a crash that says why": crashes(crashes(start, MISMATCH).restarted(), MISMATCH),
    "a usage error after imports that took long": misused(misused_once),
    "be it that a gang before had finished steps": misused(
        misused(has_stepped(start).settled().after(2).fails(1).restarted()).restarted()
    ),
    "on another rank": raises(once, NO_MODULE, rank=0),
    "after long, where steps are reported and none was": raises(
        raises(with_steps.after(600), NO_MODULE).restarted().hears(progress=NO_STEP).after(600), NO_MODULE
    ),
    "before all ranks ran": raises(raises(start, NO_MODULE).ready_again().settled().placed(0, 1), NO_MODULE),
    "in a new pod, after a restart in place": raises(
        raises(told_in_place(in_place).settled(), NO_MODULE).restarted(), NO_MODULE
    ),
    "there on another rank": raises(
        raises(told_in_place(in_place).settled(), NO_MODULE).restarted(), NO_MODULE, rank=0
    ),
    "twice under supervisors, which leave it to the operator": left_to_us(left_to_us(in_place).restarted().hears()),
}


@pytest.mark.parametrize("moment", LOOPS.values(), ids=LOOPS)
def test_it_is_a_crash_loop_also(moment: Moment) -> None:
    assert moment.settled().gone().settled().condition(ConditionType.FAILED).reason == "CrashLoop"


def test_in_the_same_pod_it_is_none_yet() -> None:
    moment = raises(told_in_place(in_place).settled(), NO_MODULE)
    assert moment.decided().status.state == "Restarting"
    assert moment.decided().status.restarts == 2
