"""However large a job is, a look at it leaves time for all else: the Lease, other jobs, the kubelet's questions."""

import asyncio
import gc
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from ddpjob_operator.api.contract import MAX_NODES
from ddpjob_operator.cluster.kube.api_client import ApiClient
from ddpjob_operator.cluster.kube.objects import JobObject, PodObject
from ddpjob_operator.cluster.kube.objects import read as read_job
from ddpjob_operator.cluster.reconciler import Reconciler
from ddpjob_operator.cluster.store import Store
from ddpjob_operator.cluster.workqueue import WorkQueue
from ddpjob_operator.engine import Settings

from tests.unit.engine.builders import START, a_job

from .manifests import UID, a_manifest, read, trainer

KEY = ("team", "digits")
LONGEST_SECONDS = 0.05
LOG = "Traceback (most recent call last):\n" + '  File "train.py", line 1, in main\n' * 100 + "ValueError: nan"
"""As much of its end as a kubelet passes on, and more."""


class Loop(asyncio.SelectorEventLoop):
    """Knows for how long its thread computed without a break: what else there is to do waited so long."""

    longest = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest = max(self.longest, time.thread_time() - began)


class Failed(ApiClient):
    """An API server where all ranks of the largest job have failed."""

    def __init__(self) -> None:
        ended = {"exitCode": 1, "reason": "Error", "message": LOG, "finishedAt": "2026-01-01T12:00:30Z"}
        self.pods = [
            read(a_manifest(rank, containerStatuses=trainer(terminated=ended)[1:])) for rank in range(MAX_NODES)
        ]
        moment = a_job(nodes=MAX_NODES).called(uid=UID).running()
        self.status = moment.status.to_dict()
        self._spec, self._version = {"nodes": MAX_NODES, "template": moment.snapshot.job.spec.template}, 1
        self.deleted: set[str] = set()

    def now(self) -> datetime:
        return START.astimezone(UTC) + timedelta(minutes=1)

    def job(self) -> JobObject:
        metadata = {"name": "digits", "namespace": "team", "uid": UID, "resourceVersion": str(self._version)}
        return read_job({"metadata": metadata, "spec": self._spec, "status": self.status}, JobObject)

    async def get(self, *_: Any) -> Any:
        await asyncio.sleep(0)
        return self.job()

    async def list(self, *_: Any) -> tuple[list[PodObject], int]:  # type: ignore[override]
        await asyncio.sleep(0)
        return self.pods, 1

    async def replace_status(self, *words: Any) -> Any:
        await asyncio.sleep(0)
        self.status, self._version = words[-1], self._version + 1
        return self.job()

    async def delete(self, *words: Any) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.deleted.add(words[2])


def test_the_largest_job_whose_ranks_fail_together_is_looked_at_without_holding_all_else_up() -> None:
    api = Failed()

    async def play() -> None:
        keys = WorkQueue()
        store = Store(keys.mark)
        store.jobs.saw(api.job())
        nobody: Any = SimpleNamespace(
            record=lambda *_: None, attend=lambda *_: None, forget=lambda _: None, heard=lambda *_: None
        )
        reconciler = Reconciler(api, store, keys, nobody, supervisors=nobody, witnesses=nobody, settings=Settings())
        keys.open()
        keys.mark(KEY)
        for _ in ("it reads what there is", "it decides, and carries it out"):
            await reconciler.round(await keys.take())
            keys.done(KEY)

    gc.disable()  # What it takes depends on all that other tests have left in this process.
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(play())
            loop = runner.get_loop()
    finally:
        gc.enable()
    assert isinstance(loop, Loop)
    assert api.status["lastFailure"]["consequences"] == MAX_NODES - 1
    assert len(api.deleted) == MAX_NODES - 1, "the log of the first stays"
    assert loop.longest < LONGEST_SECONDS
