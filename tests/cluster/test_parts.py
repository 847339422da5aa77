"""Parts of the operator by themselves against a real API server: what no whole operator shows at will."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.ownership import JobRef, name_beside
from ddpjob_operator.cluster.conversion import ref_of
from ddpjob_operator.cluster.kube import objects
from ddpjob_operator.cluster.kube.api_client import ApiClient
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.kube.lease import LeaderElector
from ddpjob_operator.cluster.kube.objects import JobObject
from ddpjob_operator.cluster.recorder import EventRecorder
from ddpjob_operator.cluster.store import Key, Store
from ddpjob_operator.cluster.writer import Writer
from ddpjob_operator.engine import NETWORK_POLICY, Create, Delete, DeleteJob, Event, Settings, StopPod
from ddpjob_operator.engine.manifests.children import build_network_policy

from tests.plant import Plant
from tests.support.jobs import Team, a_job
from tests.support.waiting import patience

A_WHILE = 60.0

Play = Callable[[Callable[[], ApiClient], Team], Awaitable[None]]


@pytest.fixture
def scene(api: Plant, monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], None]:
    """Plays with connections of their own to the API server, in a namespace of its own."""
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))

    async def whole(play: Play) -> None:
        connections: list[Connection] = []

        def an_api() -> ApiClient:
            connections.append(Connection())
            return ApiClient(connections[-1], lambda: True)

        try:
            async with asyncio.timeout(patience(A_WHILE)):
                await play(an_api, Team(api))
        finally:
            for connection in connections:
                await connection.close()

    return lambda play: asyncio.run(whole(play))


def read(job: dict[str, Any]) -> JobObject:
    """A job as the operator takes it in."""
    return objects.read(job, JobObject)


def nobody(_: Key) -> None:
    """Looks at no job."""


def holder(team: Team) -> str:
    lease = team.plant.get(f"/apis/coordination.k8s.io/v1/namespaces/{team.namespace}/leases/operator")
    return str(lease["spec"]["holderIdentity"]) if lease else "nobody"


def test_a_lease_that_is_given_back_is_not_taken_again(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        elector = LeaderElector(an_api(), team.namespace, "operator", "first")
        running = asyncio.create_task(elector.run())
        await elector.elected.wait()
        await elector.release()
        assert not elector.leads
        await running
        assert holder(team) == ""

    scene(play)


def test_a_lease_that_somebody_deletes_makes_no_second_leader(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        first, second = (LeaderElector(an_api(), team.namespace, "operator", name) for name in ("first", "second"))
        leading = asyncio.create_task(first.run())
        await first.elected.wait()
        assert not await second._try(), "it has seen who leads"
        standing_by = asyncio.create_task(second.run())
        leading.cancel()  # It is frozen, say.
        with suppress(asyncio.CancelledError):
            await leading
        team.delete("leases", "operator")
        await second.elected.wait()
        assert not first.leads
        assert holder(team) == "second"
        standing_by.cancel()

    scene(play)


def test_an_event_goes_on_counting_where_another_operator_has_stopped(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        team.apply(a_job())
        job = team.job()
        assert job is not None
        for times in (3, 2):
            recorder = EventRecorder(an_api())
            writing = asyncio.create_task(recorder.run())
            for _ in range(times):
                recorder.record(read(job).metadata, Event(warning=True, reason="Blocked", message="No room"))
            await recorder.drained()
            writing.cancel()
        assert team.events() == {"Blocked": 5}
        assert "(x5 over" in team.kubectl("describe", "ddpjob", "digits")
        assert "No room" in team.kubectl("events", "--for", "ddpjob/digits")

    scene(play)


def test_a_job_that_has_changed_since_it_was_looked_at_is_not_deleted(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        team.apply(a_job())
        seen = team.job()
        assert seen is not None
        store = Store(nobody)
        store.jobs.update(read(seen))
        team.change(ttlSecondsAfterFinished=3600)
        writer, key = Writer(an_api(), store, lambda: True), (team.namespace, "digits")
        await writer.carry_out((DeleteJob(),), ref_of(read(seen)))
        now = team.job()
        assert now is not None
        known = store.jobs.get(key)
        assert known is not None, "the next look begins with what is there now"
        assert known.metadata.resource_version == now["metadata"]["resourceVersion"]
        await writer.carry_out((DeleteJob(),), ref_of(read(now)))
        assert team.job() is None
        assert store.jobs.get(key) is None, "nothing more is to be done about it"
        await writer.carry_out((DeleteJob(),), ref_of(read(now)))

    scene(play)


def test_another_job_under_its_name_is_not_deleted(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        team.apply(a_job())
        former = team.job()
        assert former is not None
        team.delete("ddpjobs", "digits", wait=True)
        team.apply(a_job())
        store = Store(nobody)
        store.jobs.update(read(former))
        await Writer(an_api(), store, lambda: True).carry_out((DeleteJob(),), ref_of(read(former)))
        known, there = store.jobs.get((team.namespace, "digits")), team.job()
        assert known is not None
        assert there is not None
        assert known.uid == there["metadata"]["uid"] != former["metadata"]["uid"]

    scene(play)


def test_another_pod_under_its_name_is_not_stopped(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        team.apply(a_job())
        job = team.job()
        assert job is not None
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
        containers = [{"name": "trainer", "image": "any"}]
        team.create({**pod, "spec": {"containers": containers}})
        writer = Writer(an_api(), Store(nobody), lambda: True)
        there = f"/api/v1/namespaces/{team.namespace}/pods/pod"
        await writer.carry_out((StopPod("pod", "another"), StopPod("none", "another")), ref_of(read(job)))
        assert "activeDeadlineSeconds" not in team.plant.get(there)["spec"]
        await writer.carry_out((StopPod("pod", team.plant.get(there)["metadata"]["uid"]),), ref_of(read(job)))
        assert team.plant.get(there)["spec"]["activeDeadlineSeconds"] == 1

    scene(play)


def test_a_network_policy_that_is_deleted_is_gone_for_us_too(scene: Callable[[Play], None]) -> None:
    async def play(an_api: Callable[[], ApiClient], team: Team) -> None:
        team.apply(a_job())
        seen = team.job()
        assert seen is not None
        store, job = Store(nobody), DDPJob.from_dict(seen)
        writer = Writer(an_api(), store, lambda: True)
        whose = JobRef(team.namespace, job.metadata.name, job.metadata.uid)
        await writer.carry_out((Create(NETWORK_POLICY, build_network_policy(job, Settings())),), ref_of(read(seen)))
        assert store.owned[NETWORK_POLICY].owned_by(whose)
        await writer.carry_out((Delete(NETWORK_POLICY, name_beside(job.ref)),), ref_of(read(seen)))
        assert not store.owned[NETWORK_POLICY].owned_by(whose)
        assert not team.all("networkpolicies")

    scene(play)
