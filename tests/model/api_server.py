"""A simulated API server for one job of any size. It answers what the operator's connection sends.

It answers in its own thread, with bytes, so that the event loop has the same work as with a real server.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import msgspec
from ddpjob_operator.api.contract import API_VERSION, KIND, MANAGER, Label
from ddpjob_operator.cluster.kube.clock import Reading
from ddpjob_operator.engine import SERVICE, Pod

from tests.unit.engine.builders import Moment

GRACE_SECONDS = 30


class Server:
    """Replaces a `Connection`. At first it contains the objects that exist at one moment of the job."""

    def __init__(self, moment: Moment, until: Mapping[tuple[str, str], int]) -> None:
        """`until` gives methods and kinds of objects, each with a number of requests.

        `enough` is set once all these numbers are reached.
        """
        self._until = until
        self.enough = asyncio.Event()
        self.asked: Counter[tuple[str, str]] = Counter()
        snapshot = moment.snapshot
        self._now = snapshot.now
        self._job = snapshot.job.to_document()
        self._version = 1
        spec = snapshot.job.spec.template["spec"]
        self._specs = [msgspec.Raw(msgspec.json.encode({**spec, **node})) for node in ({}, {"nodeName": "node-1"})]
        self._pods = {pod.name: self._manifest(pod) for pod in snapshot.pods}
        self.services = snapshot.owned[SERVICE]
        self.ended: list[bytes] = []
        """Pods that are gone, but whose deletion has not been reported by a watch yet."""
        self._thread = ThreadPoolExecutor(1, "API server")

    @property
    def clock(self) -> "Server":
        """The clock of the connection."""
        return self

    def now(self) -> datetime:
        """The time of the moment."""
        return self._now

    def read(self) -> Reading:
        """A reading of this time, without any uncertainty."""
        return Reading(self._now, self._now, self._now)

    @property
    def status(self) -> Mapping[str, Any]:
        """The job's status as it was last written."""
        status: Mapping[str, Any] = self._job["status"]  # type: ignore[assignment]
        return status

    async def send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        check: Any,
        **more: Any,
    ) -> tuple[int, bytes, None]:
        """Works like `Connection.send`."""
        check()
        kind, *name = path.partition(f"/namespaces/{self._namespace}/")[2].split("/")
        words = (method, kind, name, data or b"", more["params"] or {})
        answer = await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, *words)
        self.asked[method, kind] += 1
        if all(self.asked[one] >= times for one, times in self._until.items()):
            self.enough.set()
        return 200, answer, None

    def job(self) -> bytes:
        """The job, encoded."""
        return msgspec.json.encode(self._versioned(self._job))

    def service(self, name: str) -> bytes:
        """The Service of the job's master, encoded."""
        own = {"name": name, "namespace": self._namespace, "uid": "service", "ownerReferences": self._owners}
        labels = {Label.JOB_NAME: self._name}
        return msgspec.json.encode({"metadata": {**own, "resourceVersion": "1", "labels": labels}})

    def _answer(self, method: str, kind: str, name: list[str], data: bytes, query: Mapping[str, str]) -> bytes:
        match method, kind:
            case "GET", "pods":
                return self._page(query)
            case "DELETE", "pods":
                return self._deleted(name[0])
            case "POST", "pods":
                return self._created(data)
            case "POST", _:
                return msgspec.json.encode(self._versioned(msgspec.json.decode(data)))
        assert kind == "ddpjobs", f"nobody said what to answer to {method} {kind}"
        if name[1:] == ["status"]:
            self._job["status"] = msgspec.json.decode(data)[1]["value"]
        return self.job()

    def _created(self, data: bytes) -> bytes:
        """Stores a pod as requested, with what the API server adds. Its spec stays encoded, because it is large."""
        pod = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(pod["metadata"])
        made = self._versioned({"metadata": metadata, "spec": pod["spec"], "status": {"phase": "Pending"}})
        made["metadata"]["uid"] = f"uid of {metadata['name']}"
        self._pods[metadata["name"]] = content = msgspec.json.encode(made)
        return content

    def _deleted(self, name: str) -> bytes:
        """Deletes a pod. Its containers end immediately, although it still has a grace period."""
        pod = msgspec.json.decode(self._pods.pop(name), type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(pod["metadata"])
        gone_by = (self._now + timedelta(seconds=GRACE_SECONDS)).isoformat()
        metadata |= {"deletionTimestamp": gone_by, "deletionGracePeriodSeconds": GRACE_SECONDS}
        content = msgspec.json.encode(self._versioned({**pod, "metadata": metadata}))
        self.ended.append(content)
        return content

    def _page(self, query: Mapping[str, str]) -> bytes:
        begin, limit = int(query.get("continue", 0)), int(query["limit"])
        pods = [*self._pods.values()]
        more = {"continue": str(begin + limit)} if begin + limit < len(pods) else {}
        items = [msgspec.Raw(pod) for pod in pods[begin : begin + limit]]
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self._version), **more}, "items": items})

    def _versioned(self, document: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = {"uid": "uid", **document["metadata"], "resourceVersion": str(self._version)}
        return {**document, "metadata": metadata}

    def _manifest(self, pod: Pod) -> bytes:
        """A pod as a kubelet describes it."""
        labels = {Label.MANAGED_BY: MANAGER, Label.JOB_NAME: self._name, Label.JOB_UID: self._uid}
        labels |= {Label.NODE: str(pod.node), Label.INCARNATION: str(pod.incarnation)}
        own: dict[str, Any] = {"name": pod.name, "namespace": self._namespace, "uid": pod.uid}
        own |= {"ownerReferences": self._owners}
        own |= {"creationTimestamp": pod.created_at, "labels": labels}
        trainer: dict[str, Any] = {}
        if pod.running:
            trainer = {"running": {"startedAt": pod.started_at}}
        if (ended := pod.exit) is not None:
            code = {"exitCode": ended.code, "reason": ended.reason, "message": ended.message}
            trainer = {"terminated": {**code, "finishedAt": ended.finished_at}}
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": pod.scheduled_at}
        status = {
            "phase": "Running" if pod.running else "Failed" if ended else "Pending",
            "podIP": pod.address,
            "conditions": [placed] if pod.scheduled_at else [],
            "containerStatuses": [{"name": "trainer", "state": trainer}],
        }
        document = {"metadata": own, "spec": self._specs[pod.node_name is not None], "status": status}
        return msgspec.json.encode(self._versioned(document))

    @property
    def _metadata(self) -> Mapping[str, str]:
        metadata: Mapping[str, str] = self._job["metadata"]  # type: ignore[assignment]
        return metadata

    @property
    def _name(self) -> str:
        return self._metadata["name"]

    @property
    def _namespace(self) -> str:
        return self._metadata["namespace"]

    @property
    def _uid(self) -> str:
        return self._metadata["uid"]

    @property
    def _owners(self) -> list[dict[str, Any]]:
        reference = {"apiVersion": API_VERSION, "kind": KIND, "name": self._name, "uid": self._uid}
        return [{**reference, "controller": True}]
