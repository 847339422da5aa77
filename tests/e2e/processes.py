"""Processes inside of containers, as the machine sees them, for tests that kill.

Other plants may run on this machine: pods' names and jobs' uids tell whose a process is.
"""

from collections.abc import Container

import psutil
from ddpjob_operator.api.contract import Env
from ddpjob_rank.parsing import unpack_variables

from tests.plant import Plant
from tests.support.helm import NAMESPACE


def rank_of(uid: str, rank: int) -> psutil.Process:
    """The process in which a rank of the job with this uid trains: the child of those that watch over it."""
    wanted = {Env.UID: uid, Env.RANK: str(rank)}
    found = {
        process.pid: process
        for process in psutil.process_iter()
        if wanted.items() <= _environment(process).items() and not _only_keeps_count(process)
    }
    return max(found.values(), key=lambda process: (_depth(process, found), -process.pid))


def _only_keeps_count(process: psutil.Process) -> bool:
    """Whether it is multiprocessing's own, beside what a script spawns: without it training goes on."""
    return any("resource_tracker" in word for word in _words(process))


def sandbox_of(process: psutil.Process) -> psutil.Process:
    """The process that holds the sandbox of the pod in which this one runs: its shim starts that first."""
    shim = next(parent for parent in process.parents() if parent.name().startswith("containerd-shim"))
    return min(shim.children(), key=psutil.Process.create_time)


def operators(plant: Plant) -> dict[str, psutil.Process]:
    """The operator's processes by the names of their pods."""
    pods = plant.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    names = {pod["metadata"]["name"] for pod in pods}
    found = {}
    for process in psutil.process_iter():
        name = _environment(process).get("HOSTNAME")
        if name in names and any(word.endswith("/ddpjob-operator") for word in _words(process)):
            found[name] = process
    return found


def _depth(process: psutil.Process, family: Container[int]) -> int:
    """How many of its forebears are of the family as well."""
    try:
        return sum(parent.pid in family for parent in process.parents())
    except psutil.NoSuchProcess:
        return -1


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _environment(process: psutil.Process) -> dict[str, str]:
    """What it was started with, unpacked as a supervisor does it."""
    try:
        variables = process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return {}
    unpack_variables(variables)
    return variables
