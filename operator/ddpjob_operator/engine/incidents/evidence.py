"""Determines why a rank failed from the reports of the cluster, the container runtime and the program itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ddpjob_operator.api import Cause, Signal
from ddpjob_operator.api.contract import ExitCode
from ddpjob_operator.api.restart import signal_name
from ddpjob_operator.engine.foreign import attempt_of, count_of, peer_lost_words, text_of, words_of
from ddpjob_operator.engine.manifests.names import present_pod_name
from ddpjob_operator.engine.reports import CLAIMABLE, incident_of, rank_of
from ddpjob_operator.engine.snapshot import Exit, Pod
from ddpjob_operator.engine.view import View
from ddpjob_operator.text.foreign_json import parsed_object

from .facts import OF_SUPERVISOR, SIGNAL_BASE, Facts
from .pod_reasons import (
    DEADLINE_EXCEEDED,
    ENDED,
    MORE_PRECISE,
    REJECTION,
    is_rejection,
    rejection_cause,
)
from .torchrun import TRACEBACK, of_its_rank

SIGNALS = range(1, 65)
SIGKILL, SIGTERM = Signal.KILL.number, Signal.TERM.number
STOP_SIGNALS = frozenset({SIGKILL, SIGTERM})
"""The signals that end a pod when the operator or a user deletes it."""

ANSWERS = frozenset({None, Cause.APPLICATION, Cause.PEER_LOST})
"""Causes in a rank's report that may merely mean that the rank was told to stop. This does not apply if the report
names the incident that ended the attempt: then the supervisor ended because of that incident."""
NO_ANSWER: frozenset[Cause | None] = frozenset({None})

OOM_KILLED = "OOMKilled"
"""The container runtime's reason if a container ran out of memory. The runtime sets it even if only a child of the
main process was killed, or if the pod was being deleted."""

PEER_LOST_PHRASES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "DistNetworkError",
    "DistStoreError",
    "DistBackendError",
    "Connection refused",
    "Socket closed",
    "Application timeout caused pair closure",
    "ms for recv operation to complete",
    "ms for send operation to complete",
    "remote process exited",
    "ncclRemoteError",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
    "recvValue failed",
)
"""Parts of the messages of gloo, NCCL and the store when another rank is gone. Used if a program writes no failure
report."""

OWN_ERRORS = ("EADDRINUSE", "ncclInvalidUsage", "ncclInvalidArgument", "ncclUnhandledCudaError")
"""Parts of the messages of NCCL and the store when the rank itself is at fault, although the exception has one of the
types above."""
NCCL_EXPLAINS = "Last error:"
"""In an NCCL exception, the line after this one contains NCCL's own explanation."""

DISK_FULL = re.compile(
    r"OSError: \[Errno (?:28|122)\] |.{1,400}\(os error (?:28|122)\)$"
    r"|error: (?:No space left on device|Disk quota exceeded)"
)
"""The errors ENOSPC and EDQUOT as printed by Python, by Rust libraries such as safetensors, and by our ranks when a
full disk keeps them from writing a failure report."""

BROKEN_DEVICE = (
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "hardware stack error",
    "Invalid access of peer GPU memory over nvlink or a hardware error",
    "GPU is lost",
    "GPU has fallen off the bus",
    "GPU requires reset",
)
"""Parts of the messages of CUDA and the driver when a GPU is broken, which no program can cause. Used if a program
writes no failure report."""

DISRUPTIONS = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.EVICTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "TerminationByKubelet": Cause.EVICTED,
}
"""Reasons of the condition DisruptionTarget
(https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions)."""

FORGOTTEN = frozenset({"Unknown", "ContainerStatusUnknown"})
"""Reasons of containers that ended without containerd or the kubelet noticing, because the Kubernetes node was
rebooted or somebody else removed the containers."""

ERROR = 1
"""The exit code with which nearly every program ends after it has reported an error."""
PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""The prefix that torch.distributed adds to each line of a traceback."""

NO_IMAGE = frozenset({"InvalidImageName", "ErrImageNeverPull"})
# ErrImagePull is left out, because a pull that has failed for the first time may yet succeed.
PULLING = frozenset({"ImagePullBackOff"})
NO_SUCH_IMAGE = (
    *("not found", "manifest unknown", "does not exist"),
    *("denied", "unauthorized", "authorization failed", "forbidden"),
)
"""A registry's words, in lower case, for errors that a retry does not fix. (If the registry does not answer, a retry
may help, and the kubelet retries.)"""
NO_CONTAINER = frozenset({"CreateContainerConfigError", "CreateContainerError"})
CONTAINER_TIMEOUT = timedelta(seconds=60)
"""How long a container may wait for an object that does not exist yet, such as a ConfigMap applied after the job."""


def facts_of(
    pod: Pod,
    attempt: int,
    now: datetime,
    problems: Mapping[str, str] | None = None,
    *,
    by_us: bool = False,
    noun: str = "pod",
    supervised: bool = False,
) -> Facts:
    """Returns the facts of a pod that ended badly, cannot start, is being deleted, or vanished.

    `problems` are the problems of Kubernetes nodes by name; `by_us` says that this operator deletes the pod; `noun`
    is what messages call a pod; `supervised` says that the pod's main process is a supervisor.
    """
    by_cluster = _taken_away(pod, problems or {})
    ended, rank = of_its_rank(pod.exit) if pod.exit else (None, None)
    signal = _signal(ended.code) if ended else None
    report = _read(ended.message) if ended else _Report()
    how: dict[str, Any] = {}
    if ended is not None:
        known = report.rank if rank is None else rank
        how = {"rank": rank_of(known, pod.node, placed=report.node == pod.node)}
        how |= {"exit_code": ended.code, "signal": signal_name(signal) if signal else None, "step": report.step}
        how |= {"steps_since_restart": report.steps_since_restart}
    time = (ended.finished_at if ended else None) or now
    first = reported_incident(pod, now)
    if first is not None and first.node == pod.node:
        how |= {"tied": first.tied, "consequences": first.consequences, "consequence_nodes": first.consequence_nodes}
    # Supervisors may have started attempts that are not in the status yet.
    attempt = max(attempt, report.attempt or 0)
    # The cluster's reasons take precedence over the pod's own report, because a pod that the cluster stops is just
    # killed by a signal, or saves a checkpoint and reports that.
    if by_cluster is not None:
        return _facts(pod, attempt, time, *by_cluster, **how)
    if ended is None:
        return _facts(pod, attempt, time, *_without_end(pod, now, noun))
    cause = _cause(ended, signal, report)
    when_told = _ended_when_told(pod, ended, by_us=by_us)
    told_to_stop = signal in STOP_SIGNALS or when_told
    # If the operator deletes the pods because one of them failed, every report counts, because any of the pods may
    # have failed first. If a supervisor's report names an incident, that incident ended the supervisor, even if
    # somebody is deleting its pod.
    answers = ANSWERS if when_told and not by_us and first is None else NO_ANSWER
    if pod.deleting and (cause is Cause.STOPPED or (told_to_stop and not _speaks(ended, report, answers))):
        cause = Cause.STOPPED if by_us else Cause.POD_DELETED
    message = report.message or _described(ended, signal, cause)
    if supervised and signal and not (report.cause or report.message) and cause is Cause.APPLICATION:
        # If the signal had ended a rank, the supervisor would have reported that.
        message = f"{OF_SUPERVISOR}{message}"
    message = peer_lost_words(message) if cause is Cause.PEER_LOST else message
    return _facts(pod, attempt, time, cause, message, **how)


def _speaks(ended: Exit, report: "_Report", answers: frozenset[Cause | None]) -> bool:
    """Whether a pod's report gives a better reason for the pod's end than that the pod was told to stop.

    The signal that ended the pod is not a better reason, because a supervisor passes on its rank's signal.
    """
    return ended.reason == OOM_KILLED or report.cause not in answers


def _ended_when_told(pod: Pod, ended: Exit, *, by_us: bool) -> bool:
    """Whether a deleted pod ended because it was told to stop, and not by an error of its own.

    True for exit code 0, because the pod would otherwise count as succeeded. A script may answer SIGTERM with an
    exception, so other codes also count if the pod ended after it was told to stop. They do not count if the operator
    deletes the pod because of another failure and the pod reports an exception: it may have failed by itself.
    """
    if ended.code == 0:
        return True
    at, told_at = ended.finished_at, pod.told_at or pod.told_by
    # Times are in whole seconds. If the two are equal, assume that the pod was told to stop first, because most
    # programs end in the same second, and few pods are deleted by hand in the very second in which they fail.
    after = at is not None and told_at is not None and at >= told_at
    return after and not (by_us and _exception(ended.message))


def stalled(pod: Pod, attempt: int, now: datetime, seconds: int) -> Facts:
    """Returns the facts of a pod that has not finished within `seconds` after the other pods did."""
    message = f"did not finish within {seconds} s of the other ranks (finishTimeoutSeconds)"
    return _facts(pod, attempt, now, Cause.STALLED, message)


def missed_supervisor_facts(view: View, pod: Pod, seconds: float) -> Facts:
    """Returns the facts of a pod that is running, but whose supervisor is missing."""
    attempt, now, problem = (
        view.status.attempt,
        view.now,
        view.snapshot.kubernetes_node_problems.get(pod.node_name or ""),
    )
    if problem:
        return _facts(pod, attempt, now, Cause.NODE_LOST, f"Kubernetes node {pod.node_name} {problem}")
    whom = "rank 0's" if pod.node > 0 else "the operator or the others"
    message = f"{view.called} {pod.node}'s supervisor has not answered {whom} for {seconds:.0f} s"
    return _facts(pod, attempt, now, Cause.PEER_LOST, message)


def killed(pod: Pod) -> bool:
    """Whether the pod's main process was killed by a signal before it could report why."""
    ended = pod.exit
    return ended is not None and _signal(ended.code) is not None and _read(ended.message).cause is None


def reported_attempt(pod: Pod) -> int | None:
    """Returns the attempt in which a pod ended, if the pod's failure report contains the attempt."""
    return _read(pod.exit.message).attempt if pod.exit is not None else None


def reported_incident(pod: Pod, now: datetime) -> Facts | None:
    """Returns the incident that ended the attempt, as reported by the supervisor of a failed pod."""
    report = parsed_object(pod.exit.message) if pod.exit is not None else None
    return incident_of(report, now) if report is not None else None


def with_pod(view: View, said: Facts) -> Facts:
    """Adds the pod's name to facts that supervisors report."""
    pod = view.current.get(said.node)
    return replace(said, pod=present_pod_name(view.snapshot.job, said.node), node_name=pod.node_name if pod else None)


def lost_with_its_node(pod: Pod, attempt: int, now: datetime) -> Facts:
    """Returns the facts of a pod that was told to stop, but whose end was never reported."""
    return _facts(
        pod, attempt, pod.gone_by or now, Cause.NODE_LOST, f"Kubernetes node {pod.node_name} does not answer"
    )


def lost_pod(name: str, node: int, incarnation: int) -> Pod:
    """Returns a placeholder for a pod that no longer exists."""
    return Pod(name=name, uid="", node=node, incarnation=incarnation)


def lacks_image(pod: Pod) -> bool:
    """Whether a scheduled pod cannot start because its image does not exist or may not be pulled."""
    waiting = pod.waiting
    if waiting is None or not pod.active or pod.scheduled_at is None:
        return False
    message = waiting.message.lower()
    return waiting.reason in NO_IMAGE or (
        waiting.reason in PULLING and any(word in message for word in NO_SUCH_IMAGE)
    )


def unstartable_at(pod: Pod) -> datetime | None:
    """Returns the time at which a pod whose container cannot be created counts as failed, unless it starts first."""
    waits = pod.waiting is not None and pod.active and pod.waiting.reason in NO_CONTAINER
    return pod.scheduled_at + CONTAINER_TIMEOUT if waits and pod.scheduled_at is not None else None


def _taken_away(pod: Pod, problems: Mapping[str, str]) -> tuple[Cause, str] | None:
    """Returns cause and message if the cluster took the pod away, unless the pod ran out of memory first."""
    if pod.exit is not None and pod.exit.reason == OOM_KILLED:
        return None
    problem = problems.get(pod.node_name or "", "")
    on_node = f"Kubernetes node {pod.node_name} {problem}" if problem else ""
    disruption = pod.disruption
    # While a pod keeps running, the condition only announces a disruption, which may still be cancelled.
    if disruption is not None and pod.reason not in MORE_PRECISE and (pod.deleting or not pod.active):
        cause = DISRUPTIONS.get(disruption.reason, Cause.EVICTED)
        if disruption.reason == "DeletionByTaintManager" and problems.get(pod.node_name or "") == "":
            cause = Cause.EVICTED  # The Kubernetes node is healthy: the taint was probably set to drain it.
        message = pod.message or disruption.message or disruption.reason
        return cause, (on_node or message) if cause is Cause.NODE_LOST else message
    if on_node and pod.deleting:
        return Cause.NODE_LOST, on_node
    return _failed_as_a_whole(pod, on_node)


def _failed_as_a_whole(pod: Pod, on_node: str) -> tuple[Cause, str] | None:
    """Returns the cause and message of a pod that the kubelet ended itself, or never started; None for other pods."""
    message = pod.message or pod.reason
    if was_rejected(pod):
        # If the trainer failed before the rejection, while other containers kept the pod alive, the rejection is not
        # the cause.
        if pod.exit is not None and _failed_by_itself(pod.exit):
            return None
        cause = rejection_cause(pod.reason, ran=_ran(pod))
        message = pod.message.removeprefix(REJECTION)
        return cause, f"Kubernetes node {pod.node_name} rejected the pod: {pod.reason}: {message}"
    # The operator itself stops pods by setting activeDeadlineSeconds. That is not a failure of the pod.
    if pod.reason == DEADLINE_EXCEEDED:
        wrong = f"{message} (activeDeadlineSeconds in the pod template)"
        return None if pod.stopped else (Cause.APPLICATION, wrong)
    if ended := ENDED.get(pod.reason):
        return ended, on_node if on_node and ended is Cause.NODE_LOST else message
    # Deleted pods are left out, because for a deleted pod that never ran, kubelets report the same as for a lost pod.
    if not pod.deleting and (lost := _lost_by_its_node(pod)):
        return Cause.NODE_LOST, on_node or lost
    return None


def _ran(pod: Pod) -> bool:
    """Whether the trainer of a pod that failed as a whole had been started."""
    # If no container ended, `pod.exit` has no code, and contains the reason of the pod, not of a container.
    return pod.exit is not None and (pod.exit.code is not None or pod.exit.reason != pod.reason)


def _failed_by_itself(ended: Exit) -> bool:
    """Whether a trainer evidently ended because of an error of its own, and not because it was killed."""
    ended, _ = of_its_rank(ended)
    report = _read(ended.message)
    if ended.code in {None, 0, ExitCode.SAVED_AND_STOPPED} or _signal(ended.code) in STOP_SIGNALS:
        return False
    return report.cause not in {None, Cause.STOPPED, Cause.PEER_LOST} or bool(_exception(ended.message))


def _lost_by_its_node(pod: Pod) -> str:
    """Describes how a healthy Kubernetes node lost a pod's containers, in a sentence; empty if it did not."""
    if pod.exit is not None and pod.exit.reason in FORGOTTEN:
        known = pod.exit.message or pod.exit.reason
        return f"Kubernetes node {pod.node_name} does not know how the trainer ended: {known}"
    if not pod.sandbox_lost:
        return ""
    return f"Kubernetes node {pod.node_name} lost the pod's sandbox while the trainer was running"


def was_rejected(pod: Pod) -> bool:
    """Whether the kubelet rejected the pod, for example because a device of the Kubernetes node has disappeared."""
    return not pod.active and is_rejection(pod.reason, pod.message)


def _without_end(pod: Pod, now: datetime, noun: str) -> tuple[Cause, str]:
    if pod.deleting:
        return Cause.POD_DELETED, f"the {noun} is being deleted"
    if lacks_image(pod):
        return Cause.IMAGE_ERROR, str(pod.waiting)
    limit = unstartable_at(pod)
    if limit is not None and now >= limit:
        return Cause.START_ERROR, str(pod.waiting)
    return Cause.POD_DELETED, f"the {noun} vanished"


def _cause(ended: Exit, signal: int | None, report: "_Report") -> Cause:
    if ended.reason == OOM_KILLED:
        return Cause.OUT_OF_MEMORY
    if ended.reason in {"StartError", "ContainerCannotRun"}:
        return Cause.START_ERROR
    if ended.code == ExitCode.SAVED_AND_STOPPED or signal == SIGTERM:
        return Cause.STOPPED
    if ended.code == ExitCode.PEER_LOST:
        return Cause.PEER_LOST
    return report.cause or _cause_by_log(ended, signal)


def _cause_by_log(ended: Exit, signal: int | None) -> Cause:
    """Returns why a program without a failure report failed, judging by the end of its log."""
    # A killed process prints nothing as it ends, so the end of the log comes from an earlier attempt or another rank.
    if signal is None and any(
        DISK_FULL.match(line) for line in (_exception(ended.message), _last_line(ended.message))
    ):
        return Cause.STORAGE_FULL
    if signal != SIGKILL and _of_a_broken_device(ended.message):
        return Cause.DEVICE_FAILED
    own = signal == SIGKILL or any(error in ended.message for error in OWN_ERRORS)
    lost = not own and any(phrase in ended.message for phrase in PEER_LOST_PHRASES)
    return Cause.PEER_LOST if lost else Cause.APPLICATION


def _facts(pod: Pod, attempt: int, time: datetime, cause: Cause, message: str, **more: Any) -> Facts:
    return Facts(
        time=time,
        attempt=attempt,
        node=pod.node,
        pod=pod.name,
        node_name=pod.node_name,
        cause=cause,
        message=text_of(message).strip(),  # A kubelet's message may end with a space.
        **more,
    )


def _signal(code: int | None) -> int | None:
    return code - SIGNAL_BASE if code is not None and code - SIGNAL_BASE in SIGNALS else None


def _described(ended: Exit, signal: int | None, cause: Cause) -> str:
    """Describes how a program without a failure report ended: by the end of its log, else by its exit code or signal.

    If the log's last line is not an exception, it may be unrelated to the failure, so an exit code that the program
    chose is put in front of it.
    """
    if ended.code is None:
        how = ended.reason or "ended without an exit code"
    else:
        how = f"killed by {signal_name(signal)}" if signal else f"exit code {ended.code}"
    if cause is Cause.DEVICE_FAILED:
        return _of_a_broken_device(ended.message) or how
    words = "" if signal else _last_words(ended.message)
    chosen = cause is Cause.APPLICATION and ended.code not in {None, ERROR}
    if words and chosen and not _exception(ended.message):
        return f"{how}: {words}"
    return words or how


def _of_a_broken_device(log: str) -> str:
    """Returns the line of a log that reports a broken GPU; empty if there is none."""
    return next((line.strip() for line in _lines(log) if any(words in line for words in BROKEN_DEVICE)), "")


def _last_words(log: str) -> str:
    """Returns the exception of a log's last traceback or, without a traceback, the last line."""
    return _exception(log) or _last_line(log)


def _last_line(log: str) -> str:
    return next((line.strip() for line in reversed(_lines(log))), "")


def _exception(log: str) -> str:
    """Returns the exception of a log's last traceback, with NCCL's explanation if it has one; else empty.

    The exception is not always the last line, because earlier output may arrive later through another pipe.
    """
    lines = _lines(log)
    begins = max((index for index, line in enumerate(lines) if line.startswith(TRACEBACK)), default=len(lines))
    said = [line.strip() for line in lines[begins + 1 :] if not line[0].isspace()]
    if NCCL_EXPLAINS in said[1:-1]:
        return f"{said[0]}; {said[said.index(NCCL_EXPLAINS) + 1]}"
    return said[0] if said else ""


def _lines(log: str) -> list[str]:
    return [line for line in (PREFIX.sub("", line) for line in log.splitlines()) if line.strip()]


@dataclass(frozen=True, slots=True)
class _Report:
    """A trainer's report on its own failure."""

    cause: Cause | None = None
    message: str = ""
    step: int | None = None
    attempt: int | None = None
    rank: Any = None
    node: Any = None
    """The node's number, which a supervisor reports only where ranks follow placement."""
    steps_since_restart: int | None = None


def _read(message: str) -> _Report:
    """Parses a failure report. The report is empty if the message, which any program may write, is something else."""
    report = parsed_object(message)
    if report is None:
        return _Report()
    cause = next((cause for cause in CLAIMABLE if cause == report.get("cause")), None)
    step, attempt = count_of(report.get("step")), attempt_of(report.get("attempt"))
    counted = count_of(report.get("stepsSinceRestart"))
    return _Report(cause, words_of(report), step, attempt, report.get("rank"), report.get("node"), counted)
