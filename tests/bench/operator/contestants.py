"""Whose speed is measured: how each is started, what a job is to it, and how it says that one is done."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from ddpjob_operator.api.contract import API_VERSION

from tests.cluster.conftest import install_crd
from tests.cluster.jobs import a_job, steered
from tests.cluster.operators import Operator, an_operator
from tests.plant import Plant
from tests.plant.api import ADMINS

from .client import Manifest

NOBODY_LISTENS = steered(address="127.0.0.1", runs_for="1s")
"""A question to such a pod is refused at once, as by one without a supervisor."""


@dataclass
class Running:
    """A contestant at work."""

    processes: dict[str, psutil.Process]
    """What works for it, by name."""
    operator: Operator | None = None
    """Ours."""


@dataclass(frozen=True)
class Contestant:
    """A controller."""

    name: str
    api: str
    plural: str
    done: str
    """The condition that it sets when a job has succeeded."""
    users: frozenset[str]
    """In whose names its requests are made."""
    job: Callable[[str, int, dict[str, str]], Manifest]
    """A job by name, number of pods and annotations of pods."""
    start: Callable[[Plant], AbstractContextManager[Running]]

    def path(self, namespace: str) -> str:
        """Where its jobs are."""
        return f"/apis/{self.api}/namespaces/{namespace}/{self.plural}"

    def is_done(self, job: Manifest) -> bool:
        """Whether it says so."""
        conditions = job.get("status", {}).get("conditions", ())
        return any(one["type"] == self.done and one["status"] == "True" for one in conditions)


@contextmanager
def our_operator(plant: Plant) -> Iterator[Operator]:
    """A replica of ours, with a name of its own and, as the others here, without a lease."""
    with an_operator(plant, "--no-leader-elect", kubeconfig=plant.kubeconfig_for("ddpjob", ADMINS)) as operator:
        yield operator


@contextmanager
def _ours(plant: Plant) -> Iterator[Running]:
    install_crd(plant)
    with our_operator(plant) as operator:
        yield Running({"operator": psutil.Process(operator.program.process.pid)}, operator)


def _our_job(name: str, pods: int, annotations: dict[str, str], **spec: Any) -> Manifest:
    return a_job(name, pods, NOBODY_LISTENS | annotations, **spec)


DDPJOB = Contestant("DDPJob", API_VERSION, "ddpjobs", "Succeeded", frozenset({"ddpjob"}), _our_job, _ours)

CONTESTANTS = {contestant.name: contestant for contestant in (DDPJOB,)}
