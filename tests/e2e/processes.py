"""Processes inside of containers, as the machine sees them, for tests that kill.

Other plants may run on this machine: pods' names and jobs' uids tell whose a process is.
"""

import psutil
from ddpjob_operator.api.contract import Env

from tests.chart.helm import NAMESPACE
from tests.plant import Plant


def rank_of(uid: str, rank: int) -> psutil.Process:
    """The trainer process of a rank of the job with this uid."""
    wanted = {Env.UID: uid, Env.RANK: str(rank)}
    found = [process for process in psutil.process_iter() if wanted.items() <= _environment(process).items()]
    return min(found, key=lambda process: process.pid)


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


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return {}
