"""Which rank failed first, and why: the rest are consequences."""

import json
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.api import Cause, Incident, RestartAction
from ddpjob_operator.engine import Disruption, Exit, Pod, Waiting
from ddpjob_operator.engine.incidents.evidence import CLAIMABLE, DISRUPTIONS, facts_of
from ddpjob_operator.engine.incidents.facts import Facts
from ddpjob_operator.engine.incidents.judgement import Judgement
from ddpjob_operator.engine.incidents.ledger import noted
from ddpjob_operator.engine.incidents.pod_reasons import ENDED as ENDED_AS_A_WHOLE
from ddpjob_operator.engine.incidents.pod_reasons import REJECTED, UNSUPPORTED
from ddpjob_operator.engine.manifests.names import present_pod_name
from ddpjob_operator.engine.view import View
from ddpjob_supervisor.gang.messages import End
from hypothesis import given
from hypothesis import strategies as st

from .builders import START, Moment, a_job, plan

RESET = "[127.0.0.1]:14730: Connection reset by peer"
NOT_COME = "Timed out waiting 1800000ms for recv operation to complete"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
PEER = "RuntimeError: [gloo] Connection closed by peer [10.0.0.7]:4711"

NCCL_USAGE = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691,"
    " invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3"
)
IOSTREAM = "RuntimeError: basic_ios::clear: iostream error"
SAFETENSORS_QUOTA = "SafetensorError: Error while serializing: I/O error: Disk quota exceeded (os error 122)"
DUPLICATE_GPU = (
    f"[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n[rank1]: {NCCL_USAGE}\n"
    "[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n[rank1]: Last error:\n"
    "[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device f000\n"
)
TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
    " 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)

MINUTE_AGO = START - timedelta(seconds=60)

four = a_job(nodes=4).running()


def incident(moment: Moment) -> Incident:
    failure = moment.decided().status.last_incident
    assert failure is not None, "no incident was seen"
    return failure


# An exit of rank 0 -> cause, signal, message.
EXITS: dict[str, tuple[Exit, Cause, int | None, str]] = {
    "an exception": (
        Exit(1, "Error", "Traceback:\n  ...\nValueError: no\n\n"),
        Cause.APPLICATION,
        None,
        "ValueError: no",
    ),
    "an exception, and a line that was printed before and came later": (
        Exit(1, "Error", "Traceback (most recent call last):\n  File x\nValueError: no\nepoch 1\n"),
        *(Cause.APPLICATION, None, "ValueError: no"),
    ),
    "an exception, as torch.distributed prints it": (
        Exit(1, "Error", "[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n[rank1]: ValueError: no\n"),
        *(Cause.APPLICATION, None, "ValueError: no"),
    ),
    "an exception while another one was handled": (
        Exit(
            1,
            "Error",
            "Traceback (most recent call last):\n  File x\nKeyError: 1\n\nDuring handling of the above exception, "
            "another exception occurred:\n\nTraceback (most recent call last):\n  File y\nValueError: no\n",
        ),
        *(Cause.APPLICATION, None, "ValueError: no"),
    ),
    "an exit code without a word": (Exit(3, "Error"), Cause.APPLICATION, None, "exit code 3"),
    "an exit code after words that need not be about it": (
        Exit(3, "Error", "epoch 1: loss 0.3\n"),
        *(Cause.APPLICATION, None, "exit code 3: epoch 1: loss 0.3"),
    ),
    "an exit code after an exception that says it all": (
        Exit(3, "Error", "Traceback (most recent call last):\n  File x\nValueError: no\n"),
        *(Cause.APPLICATION, None, "ValueError: no"),
    ),
    "1, which sys.exit with words leads to": (Exit(1, "Error", "no data\n"), Cause.APPLICATION, None, "no data"),
    "argparse's 2 is nobody's bad input": (
        Exit(2, "Error", "usage: train.py"),
        *(Cause.APPLICATION, None, "exit code 2: usage: train.py"),
    ),
    "a signal": (Exit(139, "Error", "the log's last line"), Cause.APPLICATION, "SIGSEGV", "killed by SIGSEGV"),
    "the out-of-memory killer": (Exit(137, "OOMKilled"), Cause.OUT_OF_MEMORY, "SIGKILL", "killed by SIGKILL"),
    "the same of a child, after which the program itself gave up": (
        Exit(1, "OOMKilled", "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed."),
        *(Cause.OUT_OF_MEMORY, None, "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed."),
    ),
    "the same, whatever the program says of it": (
        Exit(1, "OOMKilled", '{"cause": "PeerLost", "message": "a child went away", "step": 7}'),
        *(Cause.OUT_OF_MEMORY, None, "a child went away"),
    ),
    "a program that knows that it ran out of memory": (
        Exit(1, "Error", '{"cause": "OutOfMemory", "exception": "MemoryError", "message": "4 GiB"}'),
        *(Cause.OUT_OF_MEMORY, None, "MemoryError: 4 GiB"),
    ),
    "an init container of the template": (
        Exit(None, "InitContainerFailed", "init container fetch: no data"),
        *(Cause.APPLICATION, None, "init container fetch: no data"),
    ),
    "a kill that was not for memory": (Exit(137, "Error"), Cause.APPLICATION, "SIGKILL", "killed by SIGKILL"),
    "a container that could not start": (
        Exit(128, "StartError", 'exec: "trian": not found in $PATH'),
        *(Cause.START_ERROR, None, 'exec: "trian": not found in $PATH'),
    ),
    "the same in another runtime's words": (
        Exit(127, "ContainerCannotRun"),
        Cause.START_ERROR,
        None,
        "exit code 127",
    ),
    "somebody's SIGTERM": (Exit(143, "Error"), Cause.STOPPED, "SIGTERM", "killed by SIGTERM"),
    "saved and stopped on request": (Exit(205, "Error", "saved at step 40"), Cause.STOPPED, None, "saved at step 40"),
    "a lost peer, in gloo's words": (Exit(1, "Error", PEER), Cause.PEER_LOST, None, PEER),
    "a lost peer, in all of gloo's words": (
        Exit(1, "Error", f"RuntimeError: [/gloo/transport/tcp/pair.cc:545] Read error {RESET}. This is typically …"),
        Cause.PEER_LOST,
        None,
        f"RuntimeError: Read error {RESET}",
    ),
    "a peer that did not come, in gloo's words": (
        Exit(1, "Error", f"RuntimeError: {NOT_COME}"),
        *(Cause.PEER_LOST, None, f"RuntimeError: {NOT_COME}"),
    ),
    "two ranks on one GPU, in NCCL's words": (
        Exit(1, "Error", DUPLICATE_GPU),
        *(
            Cause.APPLICATION,
            None,
            f"{NCCL_USAGE}; Duplicate GPU detected : rank 1 and rank 0 both on CUDA device f000",
        ),
    ),
    "a port that is taken, in the store's words": (
        Exit(1, "Error", f"Traceback (most recent call last):\n  File x\n{TAKEN}\n"),
        *(Cause.APPLICATION, None, TAKEN),
    ),
    "a full disk, in Python's words": (
        Exit(
            1, "Error", "Traceback (most recent call last):\n  File x\nOSError: [Errno 28] No space left on device\n"
        ),
        *(Cause.STORAGE_FULL, None, "OSError: [Errno 28] No space left on device"),
    ),
    "a full disk on which a rank could not leave its report": (
        Exit(
            1,
            "Error",
            f"Traceback (most recent call last):\n  File x\n{IOSTREAM}\nerror: No space left on device: big",
        ),
        *(Cause.STORAGE_FULL, None, IOSTREAM),
    ),
    "a full quota, in the words of safetensors": (
        Exit(1, "Error", f"Traceback (most recent call last):\n  File x\n{SAFETENSORS_QUOTA}\n"),
        *(Cause.STORAGE_FULL, None, SAFETENSORS_QUOTA),
    ),
    "an abort over a lost peer": (
        Exit(134, "Error", "Watchdog caught collective operation timeout"),
        *(Cause.PEER_LOST, "SIGABRT", "killed by SIGABRT"),
    ),
    "a broken GPU, in CUDA's words": (
        Exit(1, "Error", f"{ECC}\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."),
        *(Cause.DEVICE_FAILED, None, ECC),
    ),
    "an abort over a broken GPU": (
        Exit(134, "Error", f"watchdog thread terminated with exception: {ECC}\n{PEER}"),
        *(Cause.DEVICE_FAILED, "SIGABRT", f"watchdog thread terminated with exception: {ECC}"),
    ),
    "an error of CUDA that may be the program's": (
        Exit(1, "Error", "RuntimeError: CUDA error: unspecified launch failure"),
        *(Cause.APPLICATION, None, "RuntimeError: CUDA error: unspecified launch failure"),
    ),
    "a kill, whatever the log ends with": (
        Exit(137, "Error", PEER),
        Cause.APPLICATION,
        "SIGKILL",
        "killed by SIGKILL",
    ),
    "no exit code at all": (Exit(None, "Evicted"), Cause.APPLICATION, None, "Evicted"),
    "no exit code and no reason": (Exit(None), Cause.APPLICATION, None, "ended without an exit code"),
    "a signal that has no name": (Exit(162, "Error"), Cause.APPLICATION, "SIG34", "killed by SIG34"),
    "128 is no signal": (Exit(128, "Error"), Cause.APPLICATION, None, "exit code 128"),
    "255 is no signal": (Exit(255, "Error"), Cause.APPLICATION, None, "exit code 255"),
}


@pytest.mark.parametrize(("ended", "cause", "signal", "message"), EXITS.values(), ids=EXITS)
def test_the_cause_of_an_exit(ended: Exit, cause: Cause, signal: str | None, message: str) -> None:
    failure = facts_of(Pod("digits-0-x", "uid", 0, 1, exit=ended), 1, START)
    assert (failure.cause, failure.signal, failure.message) == (cause, signal, message)
    assert failure.exit_code == ended.code


SUPERVISED = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1", "command": ["ddpjob-supervise"]}]}}
OWN = {"cause": "Application", "message": "killed by SIGKILL"}
KILLED: dict[str, tuple[dict[str, Any], Cause, str]] = {
    "a supervisor that is killed reports nothing": ({}, Cause.APPLICATION, "its supervisor was killed by SIGKILL"),
    "a supervisor that crashes": ({"code": 139}, Cause.APPLICATION, "its supervisor was killed by SIGSEGV"),
    "a rank that is killed is reported": ({"message": json.dumps(OWN)}, Cause.APPLICATION, "killed by SIGKILL"),
    "the kernel may have killed both": ({"reason": "OOMKilled"}, Cause.OUT_OF_MEMORY, "killed by SIGKILL"),
    "a rank whose cause is of a newer version": (
        {"message": json.dumps({**OWN, "cause": "Overheated"})},
        Cause.APPLICATION,
        "killed by SIGKILL",
    ),
    "a supervisor that ends by itself": ({"code": 3}, Cause.APPLICATION, "exit code 3"),
}


@pytest.mark.parametrize(("how", "cause", "message"), KILLED.values(), ids=KILLED)
def test_a_supervisor_that_is_killed_is_named(how: dict[str, Any], cause: Cause, message: str) -> None:
    job = a_job(nodes=2, template=SUPERVISED).running()
    failure = incident(job.fails(1, **{"code": 137, **how}))
    assert (failure.cause, failure.message) == (cause, message)


TORCHRUN = """\
E0101 12:00:00 9419 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 10, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-01_12:00:00
  host      : digits-1
  rank      : 2 (local_rank: 0)
  exitcode  : -15 (pid: 13856)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 13856
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_12:00:00
  host      : digits-1
  rank      : 3 (local_rank: 1)
  exitcode  : {code} (pid: 13858) {signal}
  error_file: {file}
  traceback : {said}
============================================================
"""
"""The end of its log, as torchrun 2.15 prints it."""

NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
RECORDED = """\
Traceback (most recent call last):
    File "/opt/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 384, in wrapper
      result = f(*args, **kwargs)
               ^^^^^^^^^^^^^^^^^^
    File "/code/train.py", line 6, in main
      raise {error}
  {error}
  """


PRINTED = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/code/train.py", line 6, in <module>
[rank3]:     raise {error}
[rank3]: {error}
"""
"""What a rank prints itself, before torchrun does."""

STOPPED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15"


def under_torchrun(code: int, said: str, signal: str = "", file: str = "<N/A>") -> str:
    return TORCHRUN.format(code=code, said=said, signal=signal, file=file)


def printed(error: str, code: int = 1) -> str:
    return PRINTED.format(error=error) + under_torchrun(code, NO_TRACEBACK)


def recorded(error: str) -> str:
    return under_torchrun(1, RECORDED.format(error=error), file="/tmp/torchelastic_x/attempt_0/1/error.json")


# The last words of a node's log under torchrun, which exits with 1 -> rank, exit code, signal, cause, message.
BY_TORCHRUN: dict[str, tuple[str, int | None, int, str | None, Cause, str]] = {
    "a rank that exits": (under_torchrun(3, NO_TRACEBACK), 3, 3, None, Cause.APPLICATION, "exit code 3"),
    "a rank that is killed": (
        under_torchrun(-11, "Signal 11 (SIGSEGV) received by PID 13858", " (SIGSEGV)"),
        *(3, 139, "SIGSEGV", Cause.APPLICATION, "killed by SIGSEGV"),
    ),
    "an exception of a main function with @record": (
        recorded("ValueError: shard 3 is empty"),
        *(3, 1, None, Cause.APPLICATION, "ValueError: shard 3 is empty"),
    ),
    "the loss of a peer, in such a function": (recorded(PEER), 3, 1, None, Cause.PEER_LOST, PEER),
    "an exception that the rank has printed": (
        printed("ValueError: shard 3 is empty"),
        *(3, 1, None, Cause.APPLICATION, "ValueError: shard 3 is empty"),
    ),
    "the end of one": (
        printed("ValueError: shard 3 is empty").partition("raise")[2],
        *(3, 1, None, Cause.APPLICATION, "ValueError: shard 3 is empty"),
    ),
    "one that another rank has printed": (
        printed("ValueError: no").replace("[rank3]", "[rank2]"),
        *(3, 1, None, Cause.APPLICATION, "exit code 1"),
    ),
    "one that the rank has lived through": (
        printed("ValueError: no", code=3),
        *(3, 3, None, Cause.APPLICATION, "exit code 3"),
    ),
    "the loss of a peer, as printed": (printed(PEER), 3, 1, None, Cause.PEER_LOST, PEER),
    "an exception before ranks have met": (
        printed("ModuleNotFoundError: No module named 'x'").replace("[rank3]: ", ""),
        *(3, 1, None, Cause.APPLICATION, "ModuleNotFoundError: No module named 'x'"),
    ),
    "one that may be either rank's": (
        printed("ValueError: no").replace("[rank3]: ", "").replace(": -15 ", ": 1 "),
        *(3, 1, None, Cause.APPLICATION, "exit code 1"),
    ),
    "torchrun itself, which is told to stop": (
        f"Traceback (most recent call last):\n  File x\n{STOPPED}\n",
        *(None, 143, "SIGTERM", Cause.STOPPED, "killed by SIGTERM"),
    ),
    "words that are cut off before the rank": (
        recorded("ValueError: no")[-120:],
        *(None, 1, None, Cause.APPLICATION, "ValueError: no"),
    ),
}


@pytest.mark.parametrize("told", BY_TORCHRUN.values(), ids=BY_TORCHRUN)
def test_under_torchrun_the_rank_and_its_own_end_are_told(
    told: tuple[str, int | None, int, str | None, Cause, str],
) -> None:
    failure = facts_of(Pod("digits-1-x", "uid", 1, 1, exit=Exit(1, "Error", told[0])), 1, START)
    found = (failure.rank, failure.exit_code, failure.signal, failure.cause, failure.message)
    assert (failure.node, found) == (1, told[1:])


two_of_each = a_job(nodes=2, procsPerNode=2).running()
FIRST_OF_ALL = {
    "a failure report": two_of_each.reports(1, rank=3, message="no"),
    "torchrun": two_of_each.fails(1, message=under_torchrun(1, NO_TRACEBACK)),
    "the supervisors": two_of_each.hears(attempt=2, incidents=[{"attempt": 1, "node": 1, "rank": 3}]),
    "the report of another node": two_of_each.reports(
        0, rank=0, at=-10, cause="PeerLost", incident={"attempt": 1, "node": 1, "rank": 3}
    ),
}


@pytest.mark.parametrize("moment", FIRST_OF_ALL.values(), ids=FIRST_OF_ALL)
def test_where_a_node_has_several_ranks_the_one_that_failed_first_and_its_node_are_named_by(moment: Moment) -> None:
    failure = incident(moment)
    assert (failure.node, failure.rank, failure.pod) == (1, 3, present_pod_name(moment.snapshot.job, 1))
    assert moment.decided().status.message.startswith("Rank 3 (node 1) failed: Application: ")


def test_a_program_that_does_not_know_its_rank_is_not_taken_at_its_word() -> None:
    failure = incident(two_of_each.reports(1, rank=0, cause="ConfigError", message="no such option"))
    assert (failure.node, failure.rank, failure.who) == (1, None, "node 1")


one_of_each = a_job(nodes=2).running()
UNSAID: dict[str, tuple[Moment, int | None]] = {
    "its pod ended": (one_of_each.fails(1, code=137, reason="OOMKilled"), 1),
    "its pod vanished": (one_of_each.vanishes(1), 1),
    "its supervisor is not heard": (one_of_each.after(70).hears("Gathering", missing=[1], began=-65), 1),
    "the job was suspended": (one_of_each.fails(1, at=-5).asks(suspend=True), 1),
    "it ended on a node of two": (two_of_each.fails(1, code=137, reason="OOMKilled"), None),
    "a node of two vanished": (two_of_each.vanishes(1), None),
}


@pytest.mark.parametrize(("moment", "rank"), UNSAID.values(), ids=UNSAID)
def test_the_rank_of_who_does_not_say_it_is_known_where_a_node_has_one(moment: Moment, rank: int | None) -> None:
    failure = moment.decided().status.last_incident
    assert failure is not None
    assert (failure.node, failure.rank) == (1, rank)


SEVERAL: dict[str, tuple[Moment, str]] = {
    "who failed": (two_of_each.vanishes(1), "Node 1 failed: PodDeleted: the pod vanished; "),
    "how many failed with it": (
        two_of_each.reports(1, rank=2, message="no").fails(0, at=5),
        "Rank 2 (node 1) failed: Application: no (1 more node failed with it); ",
    ),
    "who had left": (
        two_of_each.succeeds(1).fails(0, message=PEER),
        f"Node 0 failed: PeerLost: node 1 had already exited with code 0: {PEER}; ",
    ),
    "who has finished": (two_of_each.succeeds(1), "1 of 2 nodes finished: node 1"),
    "who is still to come up": (
        a_job(nodes=2, procsPerNode=2).created().runs(0),
        "1 of 2 pods running; node 1: waiting to be scheduled",
    ),
    "whose supervisor is waited for": (
        two_of_each.hears("Gathering", missing=[1]),
        "Rank 0's supervisor is waiting for node 1",
    ),
    "whose supervisor is lost": (
        two_of_each.after(70).hears("Gathering", missing=[1], began=-65),
        "Node 1 failed: PeerLost: node 1's supervisor has not answered rank 0's for 60 s; ",
    ),
}


@pytest.mark.parametrize(("moment", "words"), SEVERAL.values(), ids=SEVERAL)
def test_where_a_node_has_several_ranks_no_message_calls_it_a_rank(moment: Moment, words: str) -> None:
    assert moment.decided().status.message.startswith(words)


EVICTING = Disruption("EvictionByEvictionAPI", "Eviction API: evicting")
LOW = "The node was low on resource: memory."
USED = "Usage of EmptyDir volume exceeds the limit"
OOM = Exit(137, "OOMKilled")
ENDED = Exit(143, "Error")
RAISED = "Traceback (most recent call last):\n  File x\nValueError: no\n"
STOPPED_TORCHRUN = (
    "Traceback (most recent call last):\n  File x\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15"
)
AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
SHORT = "The node had condition: [DiskPressure]. "
HEARD_OUT = {"incident": {"attempt": 1, "node": 0, "cause": "Application"}}


def reported(cause: str, **more: Any) -> str:
    return json.dumps({"cause": cause, "message": "no", **more})


NO_ANSWER = {"node-1": "is not ready: Kubelet stopped posting node status."}

# What is known of a pod on node-1, and of nodes -> cause, message.
TAKEN: dict[str, tuple[dict[str, Any], dict[str, str], Cause, str]] = {
    # DisruptionTarget
    "preempted": (
        {"deleting": True, "disruption": Disruption("PreemptionByScheduler", "preempted by pod x")},
        {},
        *(Cause.PREEMPTED, "preempted by pod x"),
    ),
    "evicted through the API": (
        {"deleting": True, "disruption": EVICTING},
        {},
        *(Cause.EVICTED, "Eviction API: evicting"),
    ),
    "given up for a taint": (
        {"deleting": True, "disruption": Disruption("DeletionByTaintManager", "deleting due to NoExecute taint")},
        {"node-1": ""},
        *(Cause.EVICTED, "deleting due to NoExecute taint"),
    ),
    "the same, and it saved and ended": (
        {
            "deleting": True,
            "disruption": Disruption("DeletionByTaintManager", "deleting due to NoExecute taint"),
            "exit": Exit(0, "Completed"),
        },
        {"node-1": ""},
        *(Cause.EVICTED, "deleting due to NoExecute taint"),
    ),
    "driven away by a taint of its node, of which nothing is known": (
        {"deleting": True, "disruption": Disruption("DeletionByTaintManager", "deleting due to NoExecute taint")},
        {},
        *(Cause.NODE_LOST, "deleting due to NoExecute taint"),
    ),
    "given up for a taint on a node that says why": (
        {"deleting": True, "disruption": Disruption("DeletionByTaintManager", "deleting due to NoExecute taint")},
        NO_ANSWER,
        *(Cause.NODE_LOST, "Kubernetes node node-1 is not ready: Kubelet stopped posting node status."),
    ),
    "swept up after its node was deleted": (
        {"exit": Exit(None), "disruption": Disruption("DeletionByPodGC", "PodGC: node no longer exists")},
        {},
        *(Cause.NODE_LOST, "PodGC: node no longer exists"),
    ),
    "taken away for a reason of the future": (
        {"deleting": True, "disruption": Disruption("DeletionByMoon")},
        {},
        *(Cause.EVICTED, "DeletionByMoon"),
    ),
    "evicted, and ended by then": (
        {"deleting": True, "disruption": EVICTING, "exit": ENDED},
        {},
        *(Cause.EVICTED, "Eviction API: evicting"),
    ),
    "evicted from a node that does not answer either": (
        {"deleting": True, "disruption": EVICTING},
        NO_ANSWER,
        *(Cause.EVICTED, "Eviction API: evicting"),
    ),
    "out of memory before it was evicted": (
        {"deleting": True, "disruption": EVICTING, "exit": OOM},
        {},
        *(Cause.OUT_OF_MEMORY, "killed by SIGKILL"),
    ),
    # its kubelet
    "evicted because the node ran short": (
        {"reason": "Evicted", "message": LOW, "exit": ENDED, "disruption": Disruption("TerminationByKubelet", "x")},
        {},
        *(Cause.EVICTED, LOW),
    ),
    "evicted for what it used itself": (
        {"reason": "Evicted", "message": USED, "exit": ENDED},
        {},
        *(Cause.STORAGE_EXCEEDED, USED),
    ),
    "evicted for what it used itself, before it ran": (
        {"reason": "Evicted", "message": USED, "exit": Exit(None, "Evicted", USED)},
        {},
        *(Cause.STORAGE_EXCEEDED, USED),
    ),
    "ended because its machine shuts down": (
        {
            "reason": "Terminated",
            "message": "Pod was terminated in response to imminent node shutdown.",
            "exit": ENDED,
            "disruption": Disruption("TerminationByKubelet", "x"),
        },
        {},
        *(Cause.NODE_LOST, "Pod was terminated in response to imminent node shutdown."),
    ),
    "the same in older words": (
        {"reason": "NodeShutdown", "message": "shutting down", "exit": ENDED},
        {},
        *(Cause.NODE_LOST, "shutting down"),
    ),
    "on a machine that was restarted": (
        {"exit": Exit(255, "Unknown")},
        {},
        *(Cause.NODE_LOST, "Kubernetes node node-1 does not know how the trainer ended: Unknown"),
    ),
    "without its container, which its kubelet does not find any more": (
        {"exit": Exit(137, "ContainerStatusUnknown", "The container could not be located")},
        {},
        *(
            Cause.NODE_LOST,
            "Kubernetes node node-1 does not know how the trainer ended: The container could not be located",
        ),
    ),
    "ended, before it ever ran, by whoever deletes it": (
        {"exit": Exit(137, "ContainerStatusUnknown", "The container could not be located"), "deleting": True},
        {},
        *(Cause.POD_DELETED, "killed by SIGKILL"),
    ),
    "told to stop since its sandbox was gone": (
        {"exit": Exit(143, "Error"), "sandbox_lost": True},
        {},
        *(Cause.NODE_LOST, "Kubernetes node node-1 lost the pod's sandbox while the trainer was running"),
    ),
    "out of memory, whatever became of its sandbox": (
        {"exit": Exit(137, "OOMKilled"), "sandbox_lost": True},
        {},
        *(Cause.OUT_OF_MEMORY, "killed by SIGKILL"),
    ),
    "not taken by its node": (
        {
            "reason": "OutOfcpu",
            "message": "Node didn't have enough resource: cpu",
            "exit": Exit(None, "OutOfcpu", "Node didn't have enough resource: cpu"),
        },
        {},
        *(
            Cause.EVICTED,
            "Kubernetes node node-1 rejected the pod: OutOfcpu: Node didn't have enough resource: cpu",
        ),
    ),
    "not taken by its node for its devices": (
        {
            "reason": "UnexpectedAdmissionError",
            "message": "no healthy devices present",
            "exit": Exit(None, "UnexpectedAdmissionError", "no healthy devices present"),
        },
        {},
        *(
            Cause.EVICTED,
            "Kubernetes node node-1 rejected the pod: UnexpectedAdmissionError: no healthy devices present",
        ),
    ),
    "rejected by a kubelet that was restarted, after it had run": (
        {"reason": "NodeAffinity", "message": f"Pod was rejected: {AFFINITY}", "exit": Exit(137, "Error")},
        {},
        *(Cause.EVICTED, f"Kubernetes node node-1 rejected the pod: NodeAffinity: {AFFINITY}"),
    ),
    "rejected after it had run, and it told the program to stop": (
        {"reason": "NodeAffinity", "message": AFFINITY, "exit": Exit(1, "Error", STOPPED_TORCHRUN)},
        {},
        *(Cause.EVICTED, f"Kubernetes node node-1 rejected the pod: NodeAffinity: {AFFINITY}"),
    ),
    "rejected after it had run, for a reason of the future": (
        {"reason": "WrongMoon", "message": "not in this phase", "exit": Exit(143, "Error")},
        {},
        *(Cause.EVICTED, "Kubernetes node node-1 rejected the pod: WrongMoon: not in this phase"),
    ),
    "rejected, but it had failed by itself before, and another container had gone on": (
        {"reason": "NodeAffinity", "message": AFFINITY, "exit": Exit(1, "Error", RAISED)},
        {},
        *(Cause.APPLICATION, "ValueError: no"),
    ),
    "rejected, but it had reported its failure before": (
        {"reason": "NodeAffinity", "message": AFFINITY, "exit": Exit(3, "Error", reported("StorageFull"))},
        {},
        *(Cause.STORAGE_FULL, "no"),
    ),
    "rejected, but it had run out of memory before": (
        {"reason": "NodeAffinity", "message": AFFINITY, "exit": OOM},
        {},
        *(Cause.OUT_OF_MEMORY, "killed by SIGKILL"),
    ),
    "rejected because its node runs short, with the reason that evicted pods have": (
        {"reason": "Evicted", "message": f"Pod was rejected: {SHORT}", "exit": Exit(None, "Evicted", SHORT)},
        {},
        *(Cause.EVICTED, f"Kubernetes node node-1 rejected the pod: Evicted: {SHORT.strip()}"),
    ),
    "never allowed to do what its template asks for": (
        {
            "reason": "SysctlForbidden",
            "message": "Pod was rejected: forbidden sysctl: net.core.somaxconn",
            "exit": Exit(None, "SysctlForbidden"),
        },
        {},
        *(
            Cause.APPLICATION,
            "Kubernetes node node-1 rejected the pod: SysctlForbidden: forbidden sysctl: net.core.somaxconn",
        ),
    ),
    "no longer allowed to do what its template asks for": (
        {"reason": "SysctlForbidden", "message": "forbidden sysctl: x", "exit": Exit(137, "Error")},
        {},
        *(Cause.EVICTED, "Kubernetes node node-1 rejected the pod: SysctlForbidden: forbidden sysctl: x"),
    ),
    "ended by its kubelet, which makes room for a critical pod": (
        {
            "reason": "Preempting",
            "message": "Preempted in order to admit critical pod",
            "exit": ENDED,
            "disruption": Disruption("TerminationByKubelet", "x"),
        },
        {},
        *(Cause.PREEMPTED, "Preempted in order to admit critical pod"),
    ),
    "ended at a deadline of its template": (
        {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than it may", "exit": ENDED},
        {},
        *(
            Cause.APPLICATION,
            "Pod was active on the node longer than it may (activeDeadlineSeconds in the pod template)",
        ),
    ),
    # somebody
    "deleted by somebody": ({"deleting": True}, {}, Cause.POD_DELETED, "the pod is being deleted"),
    "deleted, and ended by then": ({"deleting": True, "exit": ENDED}, {}, Cause.POD_DELETED, "killed by SIGTERM"),
    "deleted, and killed by then": (
        {"deleting": True, "exit": Exit(137, "Error")},
        {},
        *(Cause.POD_DELETED, "killed by SIGKILL"),
    ),
    "deleted, and ended with 0 by then": (
        {"deleting": True, "exit": Exit(0, "Completed")},
        {},
        *(Cause.POD_DELETED, "exit code 0"),
    ),
    "deleted, and ended with 1 by then": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", "saved at step 40", START)},
        {},
        *(Cause.POD_DELETED, "saved at step 40"),
    ),
    "deleted, and ended by then as torchrun does": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", STOPPED_TORCHRUN, START)},
        {},
        *(Cause.POD_DELETED, "killed by SIGTERM"),
    ),
    "failed before it was deleted": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", "no", MINUTE_AGO)},
        {},
        *(Cause.APPLICATION, "no"),
    ),
    "deleted, and answered that with an exception": (
        {"deleting": True, "told_at": MINUTE_AGO, "exit": Exit(1, "Error", RAISED, START)},
        {},
        *(Cause.POD_DELETED, "ValueError: no"),
    ),
    "deleted, and answered in the same second": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", RAISED, START)},
        {},
        *(Cause.POD_DELETED, "ValueError: no"),
    ),
    "deleted, and lost its peers by then": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", f"{RAISED}Connection closed by peer", START)},
        {},
        *(Cause.POD_DELETED, "ValueError: no"),
    ),
    "deleted, and answered under a supervisor": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", reported("Application"), START)},
        {},
        *(Cause.POD_DELETED, "no"),
    ),
    "deleted, and found no room to save": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", reported("StorageFull"), START)},
        {},
        *(Cause.STORAGE_FULL, "no"),
    ),
    "deleted while its supervisor heard the others out, after a failure": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", reported("Application", **HEARD_OUT), START)},
        {},
        *(Cause.APPLICATION, "no"),
    ),
    "deleted with a second to end, and answered that with an exception": (
        {"deleting": True, "told_by": START, "exit": Exit(1, "Error", RAISED, START)},
        {},
        *(Cause.POD_DELETED, "ValueError: no"),
    ),
    "failed by an exception, perhaps before it was deleted": (
        {"deleting": True, "told_by": START, "exit": Exit(1, "Error", RAISED, START - timedelta(seconds=1))},
        {},
        *(Cause.APPLICATION, "ValueError: no"),
    ),
    "failed by an exception, a second before it was deleted": (
        {"deleting": True, "told_at": START, "exit": Exit(1, "Error", RAISED, START - timedelta(seconds=1))},
        {},
        *(Cause.APPLICATION, "ValueError: no"),
    ),
    "failed by an exception, which somebody deletes at once": (
        {"deleting": True, "exit": Exit(1, "Error", RAISED, START)},
        {},
        *(Cause.APPLICATION, "ValueError: no"),
    ),
    "failed while it was deleted": (
        {"deleting": True, "exit": Exit(1, "Error", "ValueError: no")},
        {},
        *(Cause.APPLICATION, "ValueError: no"),
    ),
    "deleted on a node that is gone": (
        {"deleting": True},
        {"node-1": "is gone"},
        *(Cause.NODE_LOST, "Kubernetes node node-1 is gone"),
    ),
    "deleted on a node that is well": (
        {"deleting": True},
        {"node-1": ""},
        Cause.POD_DELETED,
        "the pod is being deleted",
    ),
    "failed on a node that has a problem": (
        {"exit": Exit(1, "Error", "ValueError: no")},
        NO_ANSWER,
        *(Cause.APPLICATION, "ValueError: no"),
    ),
    "vanished": ({}, {}, Cause.POD_DELETED, "the pod vanished"),
    # that cannot start
    "without an image": (
        {"waiting": Waiting("ImagePullBackOff", "trainer:2: not found"), "scheduled_at": START},
        {},
        *(Cause.IMAGE_ERROR, "ImagePullBackOff: trainer:2: not found"),
    ),
    "without the right to its image": (
        {"waiting": Waiting("ImagePullBackOff", "pull access denied"), "scheduled_at": START},
        {},
        *(Cause.IMAGE_ERROR, "ImagePullBackOff: pull access denied"),
    ),
    "without a name that its registry knows": (
        {"waiting": Waiting("ImagePullBackOff", "HEAD request to …: 401 Unauthorized"), "scheduled_at": START},
        {},
        *(Cause.IMAGE_ERROR, "ImagePullBackOff: HEAD request to …: 401 Unauthorized"),
    ),
    "kept from its image": (
        {"waiting": Waiting("ImagePullBackOff", "HEAD request to …: 403 Forbidden"), "scheduled_at": START},
        {},
        *(Cause.IMAGE_ERROR, "ImagePullBackOff: HEAD request to …: 403 Forbidden"),
    ),
    "without a ConfigMap, for a minute": (
        {"waiting": Waiting("CreateContainerConfigError", 'configmap "a" not found'), "scheduled_at": MINUTE_AGO},
        {},
        *(Cause.START_ERROR, 'CreateContainerConfigError: configmap "a" not found'),
    ),
}


@pytest.mark.parametrize(("what", "nodes", "cause", "message"), TAKEN.values(), ids=TAKEN)
def test_a_pod_that_is(what: dict[str, Any], nodes: dict[str, str], cause: Cause, message: str) -> None:
    failure = facts_of(Pod("digits-0-x", "uid", 0, 1, node_name="node-1", **what), 1, START, nodes)
    assert (failure.cause, failure.message, failure.node_name) == (cause, message, "node-1")


# By version of Kubernetes from 1.30 on: the reasons that it sets, in pkg/kubelet and the scheduler's AdmissionCheck.
POD_REASONS = {
    "1.30": {
        *("Evicted", "DeadlineExceeded", "Preempting", "Terminated", "NodeShutdown"),
        *("NodeAffinity", "NodeName", "NodePorts", "TaintToleration"),
        *("OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods"),
        *("UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "InvalidNodeInfo"),
        *("TopologyAffinityError", "SMTAlignmentError", "AppArmor", "SysctlForbidden"),
        *("PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InitContainerRestartPolicyForbidden"),
    },
    "later": {
        *("SupplementalGroupsPolicyNotSupported", "PodLevelResourcesNotSupported", "PodFeatureUnsupported"),
        *("inconsistentCPUAllocationError", "prohibitedCPUAllocationError", "getPromisedCPUSetError"),
        "VolumeAttachmentLimitExceeded",
    },
    "before": {"NodeLost", "Shutdown"},
}


def test_every_reason_of_a_pod_that_kubernetes_knows_is_in_the_table() -> None:
    assert set().union(*POD_REASONS.values()) == {*ENDED_AS_A_WHOLE, *REJECTED, *UNSUPPORTED}


@pytest.mark.parametrize("reason", sorted({*ENDED_AS_A_WHOLE, *REJECTED, *UNSUPPORTED, "OutOfnvidia.com/gpu"}))
@pytest.mark.parametrize("code", [0, 137, 143])
def test_a_pods_own_reason_outranks_the_exit_code_of_its_trainer(reason: str, code: int) -> None:
    pod = Pod("digits-0-x", "uid", 0, 1, node_name="node-1", reason=reason, message="no", exit=Exit(code, "Error"))
    assert pod.failed, "that it ended with 0 does not mean that it finished"
    assert facts_of(pod, 1, START).cause is ENDED_AS_A_WHOLE.get(reason, Cause.EVICTED)


def test_every_disruption_that_kubernetes_knows_has_a_cause() -> None:
    """Those of https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions."""
    known = ("PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC")
    assert {*known, "TerminationByKubelet"} == set(DISRUPTIONS)


def test_a_pod_that_waits_for_an_image_from_a_registry_that_is_silent_is_in_no_trouble() -> None:
    waiting = a_job(nodes=1).created().placed(0).waits(0, "ImagePullBackOff", "i/o timeout").after(9999)
    assert waiting.decided().status.last_incident is None


@pytest.mark.parametrize("cause", Cause)
def test_a_report_claims_what_a_program_can_know_and_nothing_else(cause: Cause) -> None:
    failure = incident(four.reports(2, cause=str(cause), message="I say so", at=-10))
    assert failure.cause == (cause if cause in CLAIMABLE else Cause.APPLICATION)
    assert failure.message == "I say so"


def test_what_only_the_cluster_can_know_is_not_a_programs_to_claim() -> None:
    of_the_cluster = {
        *(Cause.NODE_LOST, Cause.PREEMPTED, Cause.EVICTED, Cause.POD_DELETED),
        *(Cause.STORAGE_EXCEEDED, Cause.IMAGE_ERROR, Cause.START_ERROR, Cause.STARTED_OVER),
    }
    assert set(Cause) - CLAIMABLE == of_the_cluster


@pytest.mark.parametrize("words", ["a" * 513, "é" * 300, "日" * 200, "a" + "é" * 300])
def test_a_message_ends_after_512_bytes_and_between_two_letters(words: str) -> None:
    said = [
        incident(four.fails(2, message=words)).message,
        incident(four.reports(2, message=words)).message,
        incident(four.disrupted(2, "EvictionByEvictionAPI", words)).message,
        incident(four.evicted_by_kubelet(2, words, disruption=False)).message,
        incident(four.deleted_by_hand(2).node_has("node-2", words)).message,
    ]
    assert all(len(message.encode()) in range(510, 513) for message in said)
    assert all(message in words for message in said[:4]), "nothing was broken or added"


def test_a_failure_report_speaks_for_itself() -> None:
    moment = four.reports(2, cause="ConfigError", exception="FileNotFoundError", message="no data in /data", step=7)
    failure = incident(moment)
    assert (failure.node, failure.attempt, failure.time) == (2, 1, START)
    assert failure.pod == next(pod.name for pod in moment.pods if pod.node == 2)
    assert failure.cause is Cause.CONFIG_ERROR
    assert failure.message == "FileNotFoundError: no data in /data"
    assert failure.step == 7


# The cause and the exception of a report -> the words of the failure.
NAMED_ONCE = {
    ("ConfigError", "ConfigError"): "no",
    ("StorageFull", "StorageFullError"): "no",
    ("Diverged", "DivergedError"): "no",
    ("PreflightFailed", "PreflightError"): "no",
    ("ConfigError", "SupersededError"): "SupersededError: no",
    ("Application", "ValueError"): "ValueError: no",
    ("Application", None): "no",
}


@pytest.mark.parametrize(("said", "words"), NAMED_ONCE.items(), ids=str)
def test_an_exception_that_only_repeats_the_cause_is_not_told(said: tuple[str, str | None], words: str) -> None:
    cause, exception = said
    told = {"cause": cause, "exception": exception, "message": "no"}
    assert incident(a_job(nodes=1).running().reports(0, **told)).message == words
    heard = a_job(nodes=2).running().hears(attempt=2, incidents=[{"attempt": 1, "node": 1, **told}])
    assert incident(heard).message == words
    assert End(0, 1, 0.0, cause, "no", exception).words == f"{cause}: {words}"


@pytest.mark.parametrize(
    "report",
    [
        *("[1, 2]", "null", '"text"', "{", "[" * 4000, "9" * 5000),
        *('{"cause": "Magic"}', '{"cause": ["Stopped"]}', '{"step": true}', '{"step": "7"}', '{"step": NaN}'),
        *('{"step": -1}', f'{{"step": {2**63}}}'),
    ],
)
def test_a_report_that_is_none_is_an_application_error_without_a_step(report: str) -> None:
    failure = incident(a_job(nodes=1).running().fails(0, message=report))
    assert (failure.cause, failure.step) == (Cause.APPLICATION, None)


@given(words=st.text(), reported=st.booleans())
def test_whatever_a_program_leaves_behind_the_failure_is_valid(words: str, reported: bool) -> None:  # noqa: FBT001  given
    message = json.dumps({"message": words + "\udcff"}) if reported else words
    failure = facts_of(Pod("digits-0-x", "uid", 0, 1, exit=Exit(1, "Error", message)), 1, START)
    said, *_ = noted(View(a_job().snapshot), failure, Judgement(RestartAction.RESTART, "default"))["incidents"]
    assert said is not None
    assert Incident.model_validate_json(said.model_dump_json(by_alias=True)) == said
    assert Facts.of(said) == failure
    assert len(failure.message.encode()) <= 512


# Ends of ranks of a gang of four -> the rank that was first, its cause, its consequences.
ORDER: dict[str, tuple[Moment, int, Cause, tuple[int, ...]]] = {
    "one alone": (four.fails(2), 2, Cause.APPLICATION, ()),
    "the earlier of two exceptions": (four.fails(1, at=-1).fails(3, at=-2), 3, Cause.APPLICATION, (1,)),
    "out of memory before a signal, whatever the times say": (
        four.fails(0, code=139, at=-9).fails(3, code=137, reason="OOMKilled"),
        *(3, Cause.OUT_OF_MEMORY, (0,)),
    ),
    "a signal before an exception": (four.fails(0, at=-9).fails(3, code=139), 3, Cause.APPLICATION, (0,)),
    "an exception before a lost peer": (
        four.fails(0, 1, 2, message=PEER, at=-9).fails(3, message="ValueError: no"),
        *(3, Cause.APPLICATION, (0, 1, 2)),
    ),
    "a pod that was stopped before those that lost it": (
        four.fails(0, 1, message=PEER, at=-9).deleted_by_hand(3).fails(3, code=143),
        *(3, Cause.POD_DELETED, (0, 1)),
    ),
    "a pod that vanished before those that lost it": (
        four.fails(0, 1, message=PEER, at=-9).vanishes(3),
        *(3, Cause.POD_DELETED, (0, 1)),
    ),
    "a pod that is being deleted before those that lost it": (
        four.fails(0, message=PEER, at=-9).deleted_by_hand(3),
        *(3, Cause.POD_DELETED, (0,)),
    ),
    "a lost peer, if nothing else is known": (four.fails(2, message=PEER, at=-10), 2, Cause.PEER_LOST, ()),
    "a lost peer before those whose supervisors ended over that, however early": (
        four.reports(1, code=204, cause="PeerLost", message="rank 0 failed: PeerLost", at=-10).fails(0, message=PEER),
        *(0, Cause.PEER_LOST, (1,)),
    ),
    "out of memory, also in a pod that is being deleted": (
        four.fails(0, message=PEER).deleted_by_hand(3).fails(3, code=137, reason="OOMKilled"),
        *(3, Cause.OUT_OF_MEMORY, (0,)),
    ),
    "a pod that was evicted before those that lost it": (
        four.fails(0, 1, message=PEER, at=-9).disrupted(3, "EvictionByEvictionAPI"),
        *(3, Cause.EVICTED, (0, 1)),
    ),
    "a pod that was evicted before one that failed on its own": (
        four.fails(0, message="ValueError: no", at=-9).disrupted(3, "PreemptionByScheduler"),
        *(3, Cause.PREEMPTED, (0,)),
    ),
    "out of memory before an eviction": (
        four.fails(0, code=137, reason="OOMKilled").disrupted(3, "EvictionByEvictionAPI"),
        *(0, Cause.OUT_OF_MEMORY, (3,)),
    ),
    "ranks that are done are no consequence": (four.succeeds(0, 1).fails(2), 2, Cause.APPLICATION, ()),
}


@pytest.mark.parametrize(("moment", "rank", "cause", "consequences"), ORDER.values(), ids=ORDER)
def test_first_is(moment: Moment, rank: int, cause: Cause, consequences: tuple[int, ...]) -> None:
    failure = incident(moment)
    assert (failure.node, failure.cause, failure.consequence_nodes) == (rank, cause, consequences)
    assert failure.consequences == len(consequences)
    assert not failure.tied


LEFT = {
    "one of them": (four.succeeds(2).fails(0, message=PEER, at=-10), "rank 2 had already exited with code 0"),
    "some": (four.succeeds(1, 2, 3).fails(0, message=PEER), "rank 1 and 2 more had already exited with code 0"),
}


@pytest.mark.parametrize(("moment", "said"), LEFT.values(), ids=LEFT)
def test_where_ranks_leave_early_and_well_those_that_lose_them_say_so(moment: Moment, said: str) -> None:
    failure = incident(moment)
    assert (failure.node, failure.cause, failure.message) == (0, Cause.PEER_LOST, f"{said}: {PEER}")


def test_equal_moments_of_one_kind_are_called_a_tie() -> None:
    moment = four.fails(1, 2, at=-1).decided()
    assert incident(moment).tied
    assert incident(moment).node == 1
    assert moment.status.message.startswith("Rank 1 failed, one of several at the same moment: ")


def test_a_stall_in_which_no_rank_stands_out_names_none() -> None:
    stall = {"cause": "Stalled", "exitCode": 203, "message": "not found"}
    said = {**stall, "node": 0, "rank": 0, "attempt": 1, "tied": True}
    alone = four.reports(0, code=203, **stall, incident=said)
    together = alone.reports(1, code=204, cause="PeerLost", message="all ranks failed: Stalled", incident=said)
    for decided in (alone.after(11).decided(), together.after(11).decided()):
        assert decided.status.message.startswith("All ranks failed: Stalled: not found; restart 1 of")
        assert incident(decided).who == "all ranks"


def test_a_rack_that_is_lost_is_one_incident_and_a_tie() -> None:
    failure = incident(four.node_dies(1, 2, 3))
    assert (failure.node, failure.cause, failure.consequence_nodes, failure.tied) == (
        1,
        Cause.NODE_LOST,
        (2, 3),
        True,
    )


def test_equal_moments_of_two_kinds_are_no_tie() -> None:
    assert not incident(four.fails(1).fails(2, code=139)).tied


def test_eight_consequences_are_named_and_all_are_counted() -> None:
    failure = incident(a_job(nodes=12).running().fails(11, message="ValueError: no").fails(*range(11), message=PEER))
    assert (failure.node, failure.consequences, failure.consequence_nodes) == (11, 11, tuple(range(8)))


# What supervisors report of their peers, and the pods that end before the one that failed first.
THEIRS = {"attempt": 1, "node": 3, "rank": 3, "cause": "ConfigError", "exitCode": 2, "message": "no such workload"}


def loses(moment: Moment, *ranks: int, at: float = 0, **theirs: Any) -> Moment:
    """The supervisors of these ranks end their pods over a failure of rank 3, which they name."""
    for rank in ranks:
        moment = moment.reports(rank, code=204, at=at, cause="PeerLost", message="x", incident={**THEIRS, **theirs})
    return moment


own = {"cause": "ConfigError", "message": "no such workload", "incident": THEIRS}

HEARD_OUT: dict[str, tuple[Moment, str]] = {
    "the first pod that ends lost another": (loses(four, 0), "Rank 3 failed: ConfigError: no such workload"),
    "a program without a supervisor lost somebody": (four.fails(0, message=PEER), f"Rank 0 failed: PeerLost: {PEER}"),
    "the last second of waiting": (loses(four, 0, at=-9.5), "Rank 3 failed: ConfigError: no such workload"),
}


@pytest.mark.parametrize(("moment", "said"), HEARD_OUT.values(), ids=HEARD_OUT)
def test_no_pod_is_deleted_while_the_one_that_failed_first_is_still_to_be_heard_of(moment: Moment, said: str) -> None:
    once = moment.decided()
    assert (plan(moment), once.status.last_incident, once.status.restarts) == ("", None, 0)
    assert once.status.message.startswith(said)
    assert once.status.message.endswith("; waiting for the other ranks' reports")
    assert moment.decision.wake_at is not None
    assert moment.decision.wake_at <= START + timedelta(seconds=10)


KEPT: dict[str, tuple[Moment, tuple[int, ...]]] = {
    "whichever is heard first": (loses(four, 0).decided().reports(3, code=2, **own), (0,)),
    "be it the one that failed first": (four.reports(3, code=2, **own), ()),
    "though its clock is ahead": (loses(four, 0, at=0.5).decided().reports(3, code=2, at=99, **own), (0,)),
}


@pytest.mark.parametrize(("moment", "consequences"), KEPT.values(), ids=KEPT)
def test_the_pod_that_failed_first_is_kept_and_judged(moment: Moment, consequences: tuple[int, ...]) -> None:
    ended = moment.decided()
    failure = incident(moment)
    assert (failure.node, failure.cause, failure.exit_code) == (3, Cause.CONFIG_ERROR, 2)
    assert failure.consequence_nodes == consequences
    assert ended.status.restarts == 0, "what cannot succeed is not tried again"
    assert 3 in {pod.node for pod in ended.gone().settled().pods}, "its log can still be read"


JUDGED: dict[str, tuple[Moment, int, Cause]] = {
    "a pod that does not end is named all the same": (loses(four, 0, at=-10), 3, Cause.CONFIG_ERROR),
    "a clock that is ahead is not waited for": (loses(four, 0, at=60), 3, Cause.CONFIG_ERROR),
    "what the cluster knows of a pod counts more than what its peers say": (
        loses(four, 0).fails(3, code=137, reason="OOMKilled"),
        *(3, Cause.OUT_OF_MEMORY),
    ),
    "nor is a rank blamed that is done": (loses(four.succeeds(3), 0, at=-10), 0, Cause.PEER_LOST),
    "nor one that there is not": (loses(four, 0, at=-10, node=7), 0, Cause.PEER_LOST),
    "where nobody is left to say more, nothing is waited for": (
        four.fails(0, 1, 2, 3, message=PEER),
        *(0, Cause.PEER_LOST),
    ),
}


@pytest.mark.parametrize(("moment", "rank", "cause"), JUDGED.values(), ids=JUDGED)
def test_with_what_peers_report(moment: Moment, rank: int, cause: Cause) -> None:
    failure = incident(moment)
    assert (failure.node, failure.cause) == (rank, cause)


def test_a_tie_is_one_whoever_is_heard_first() -> None:
    tied = {**THEIRS, "tied": True, "consequences": 1, "consequenceNodes": [1]}
    by_peer = incident(loses(four, 1, at=-10, **tied))
    by_itself = incident(four.reports(3, code=2, **{**own, "incident": tied}))
    for failure in (by_peer, by_itself):
        assert (failure.node, failure.tied, failure.consequence_nodes) == (3, True, (1,))


# What becomes known while the next attempt waits.
seen = four.fails(0, 1, message=PEER, at=-10).said()
"""Two ranks lost a peer, and it is not known yet whom."""

AMENDED: dict[str, tuple[Moment, int, int, tuple[int, ...]]] = {
    "nothing new": (seen, 0, 1, (1,)),
    "one more consequence": (seen.former_fails(2, message=PEER, at=1), 0, 2, (1, 2)),
    "the rank that was first after all": (seen.former_fails(3, message="ValueError: no", at=5), 3, 2, (0, 1)),
    "the first, after the pods of the others are gone": (
        seen.vanishes(0, 1).former_fails(3, message="ValueError: no", at=5),
        *(3, 2, (0, 1)),
    ),
    "a rank that we killed": (seen.decided().former_fails(2, code=137), 0, 1, (1,)),
    "a rank that saved and stopped since we asked": (seen.decided().former_fails(2, code=205), 0, 1, (1,)),
    "a rank that ended well in spite of all": (seen.decided().former_fails(2, code=0), 0, 1, (1,)),
    "a rank that ran out of memory before we killed it": (
        seen.decided().former_fails(3, code=137, reason="OOMKilled", at=5),
        *(3, 2, (0, 1)),
    ),
}


@pytest.mark.parametrize(("moment", "rank", "consequences", "named"), AMENDED.values(), ids=AMENDED)
def test_later_words_of_the_same_attempt(
    moment: Moment, rank: int, consequences: int, named: tuple[int, ...]
) -> None:
    once = moment.decided()
    failure = incident(once)
    assert (failure.node, failure.consequences, failure.consequence_nodes) == (rank, consequences, named)
    assert incident(once.decided()) == failure, "saying it once is enough"
    assert once.status.restarts == 1, "an incident is charged once, whatever becomes known of it"
