"""What users and outside events do to a job, and the state that each should lead to."""

import asyncio
from contextlib import suppress

from ddpjob_operator.api.contract import QUEUE_LABEL

from tests.support.jobs import FOR_LONG, a_job, steered

from .calls import QUEUED, condition_of, phase_of, place_of
from .life import NAME, Act, Reached, User
from .witness import Manifest, NeverError, Witness

DEADLINE_SECONDS = 1
SCHEDULE_SECONDS = SHRINK_SECONDS = 1
"""The time limits are shorter than the three seconds for which the operator may wait before it reports that all pods
exist, so no status reports that before a limit has passed."""
FOR_EVER_SECONDS = 1000
PATIENT_SECONDS = 1800
"""A time limit that is longer than a life, and shorter than the hour by which a server's clock is wrong."""
CHANGES, CHANGE_SECONDS = 4, 1.0
"""How many times a user changes an unimportant field, and how many seconds pass before each change."""
HEARING_SECONDS = 5.0
HEEDING_SECONDS = 60.0
"""How long the operator may take to react to a change by a user. It reacts immediately, but the machine may be
busy."""
TRIES = 10
"""How many times to tell a pod to end: a busy node may miss this if it has just begun to run the pod."""


def running(attempt: int, nodes: int) -> Reached:
    """The gang runs, and there is no other pod."""

    def reached(there: Witness) -> bool:
        status = there.status()
        said = (status.get("state"), status.get("attempt"), status.get("display", {}).get("ready"))
        running = [place_of(pod) for pod in there.pods() if phase_of(pod) == "runs"]
        return said == ("Running", attempt, f"{nodes}/{nodes}") and len(running) == nodes

    return reached


def looking_out(attempt: int, nodes: int) -> Reached:
    """The gang runs, one more pod waits for room, and the job is not blocked."""

    def reached(there: Witness) -> bool:
        more = [pod for pod in there.pods() if place_of(pod) == (nodes, attempt)]
        return running(attempt, nodes)(there) and [phase_of(pod) for pod in more] == ["made"] and not _blocked(there)

    return reached


def _blocked(there: Witness) -> bool:
    return condition_of(there.status(), "Blocked") == "True"


def given_back(there: Witness) -> bool:
    """A second attempt is due, and no pod of the first attempt is left."""
    return there.status().get("attempt") == 2 and not there.pods()


def suspended(there: Witness) -> bool:
    """The job's state is Suspended."""
    return there.status().get("state") == "Suspended"


def succeeded(there: Witness) -> bool:
    """The job's state is Succeeded, and its metadata says so, too."""
    return there.status().get("state") == there.mark() == "Succeeded"


def failed(there: Witness) -> bool:
    """The job's state is Failed, and its metadata says so, too."""
    return there.status().get("state") == there.mark() == "Failed"


OPEN = {"network": {"policy": "Disabled"}}


async def submit(user: User) -> None:
    """Creates a job that restarts without backoff."""
    await user.create("ddpjobs", a_job(NAME, annotations=FOR_LONG, restart={"backoffSeconds": 0}, **OPEN))


async def submit_closed(user: User) -> None:
    """Creates a job with a NetworkPolicy."""
    await user.create("ddpjobs", a_job(NAME, annotations=FOR_LONG, network={"policy": "Enabled"}))


async def submit_elastic(user: User) -> None:
    """Creates a job that wants three of the namespace's own nodes, one for each pod, while only one exists.

    Its pods are placed one by one, because a gang that is placed as a whole has nothing to give back.
    """
    job = a_job(
        NAME,
        nodes=3,
        annotations=FOR_LONG,
        elastic={"minNodes": 2, "shrinkAfterSeconds": SHRINK_SECONDS},
        scheduleTimeoutSeconds=SCHEDULE_SECONDS,
        restart={"backoffSeconds": FOR_EVER_SECONDS, "maxBackoffSeconds": FOR_EVER_SECONDS},
        network={"policy": "Enabled"},
        scheduling={"schedulingPolicy": {"basic": {}}},
    )
    job["spec"]["template"]["spec"] |= _on_nodes_of_its_own(user)
    await user.make_room(1)
    await user.create("ddpjobs", job)


def _on_nodes_of_its_own(user: User) -> Manifest:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    return {
        "nodeSelector": {user.witness.namespace: "true"},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    }


async def submit_timed(user: User) -> None:
    """Creates a job of two nodes with all kinds of time limits, while only one node exists."""
    limits = {"finishTimeoutSeconds": PATIENT_SECONDS, "scheduleTimeoutSeconds": PATIENT_SECONDS}
    limits |= {"activeDeadlineSeconds": PATIENT_SECONDS, "startDeadlineSeconds": PATIENT_SECONDS}
    scheduling = {"schedulingPolicy": {"basic": {}}}
    job = a_job(NAME, annotations=FOR_LONG, restart={"backoffSeconds": 0}, scheduling=scheduling, **limits, **OPEN)
    job["spec"]["template"]["spec"] |= _on_nodes_of_its_own(user)
    await user.make_room(1)
    await user.create("ddpjobs", job)


def held(act: Act) -> Act:
    """Does `act`.

    Then a user changes an unimportant field several times: each time the operator reads, writes, and receives the
    present time.
    """

    async def hold(user: User) -> None:
        await act(user)
        for seconds in range(PATIENT_SECONDS, PATIENT_SECONDS + CHANGES):
            await asyncio.sleep(CHANGE_SECONDS)
            await change(ttlSecondsAfterFinished=seconds)(user)
        await user.witness.until("all heeded", lambda there: _heeds(there, seconds), HEEDING_SECONDS)

    return hold


def _heeds(there: Witness, seconds: int) -> bool:
    """Whether the operator has handled the change of `ttlSecondsAfterFinished` to this number of seconds."""
    job = there.job()
    asked = job.get("spec", {}).get("ttlSecondsAfterFinished")
    return asked == seconds and there.status().get("observedGeneration") == job["metadata"]["generation"]


async def nothing(_: User) -> None:
    """Does nothing."""


async def rank_1_finishes(user: User) -> None:
    """Makes rank 1 finish with 0."""
    await _tell(user, rank=1)


def half_placed(there: Witness) -> bool:
    """One pod of the first attempt has its node, the other has none, and the status gives the reason."""
    phases, said = sorted(_phases(there).values()), there.status()
    known = said["display"]["ready"] == "1/2" and "Unschedulable" in said["message"]
    return phases == ["made", "runs"] and said.get("attempt") == 1 and known


def half_done(there: Witness) -> bool:
    """Rank 1 has finished, rank 0 still runs, and the status says so."""
    said = there.status()
    known = said.get("attempt") == 1 and said["message"].startswith("1 of 2 nodes finished")
    return _phases(there) == {0: "runs", 1: "succeeded"} and known


def _phases(there: Witness) -> dict[int, str]:
    """The phases of the pods, by rank."""
    return {place[0]: phase_of(pod) for pod in there.pods() if (place := place_of(pod))}


async def submit_queued(user: User) -> None:
    """Creates a job that a queue has to admit."""
    job = a_job(NAME, annotations=FOR_LONG, restart={"backoffSeconds": 0}, **OPEN)
    job["metadata"]["labels"] = {QUEUE_LABEL: "training"}
    await user.create("ddpjobs", job)


async def queue_admits(user: User) -> None:
    """Admits the job as Kueue does: with quota for all nodes, and no longer evicted."""
    pods = user.witness.queued()["spec"]["podSets"][0]
    given = {"name": pods["name"], "count": pods["count"]}
    said = {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
    await _say(user, said, admission={"clusterQueue": "gpus", "podSetAssignments": [given]})


async def queue_evicts(user: User) -> None:
    """Evicts the job as Kueue does: it wants its quota back, and waits until the quota is free."""
    await _say(user, {"Evicted": "True"}, reason="Preempted")


async def _say(user: User, conditions: dict[str, str], reason: str = "ByTheTest", **status: object) -> None:
    place = user.witness.queued()
    there = {one["type"]: one for one in place.get("status", {}).get("conditions", ())}
    for kind, value in conditions.items():
        said = {"type": kind, "status": value, "reason": reason, "message": ""}
        there[kind] = {**said, "lastTransitionTime": place["metadata"]["creationTimestamp"]}
    body = {"status": {"conditions": [*there.values()], **status}}
    await user.merge(QUEUED, f"{place['metadata']['name']}/status", body)


def queued(there: Witness) -> bool:
    """The job waits in its queue, and no pod of it exists. The queue has reserved no quota, or has taken it back."""
    place = there.queued()
    reserved = condition_of(place.get("status", {}), "QuotaReserved") == "True"
    waits = there.status().get("state") == "Queued" and not _blocked(there)
    return waits and bool(place) and not reserved and not there.pods()


def known_to_run(attempt: int, nodes: int) -> Reached:
    """The gang runs, and the operator has written into the job's place that it runs, and its size."""

    def reached(there: Witness) -> bool:
        place = there.queued()
        size = place["spec"]["podSets"][0]["count"] if place else 0
        ready = condition_of(place.get("status", {}), "PodsReady") == "True"
        return running(attempt, nodes)(there) and ready and size == nodes and not _blocked(there)

    return reached


def out_of_queue(there: Witness) -> bool:
    """The job is suspended, and has no place in a queue."""
    return suspended(there) and not there.queued() and not _blocked(there)


def known_to_have_succeeded(there: Witness) -> bool:
    """The job's state is Succeeded, and its queue has been informed."""
    return succeeded(there) and condition_of(there.queued().get("status", {}), "Finished") == "True"


def change(**spec: object) -> Act:
    """Changes these fields of the job's spec."""

    async def act(user: User) -> None:
        await user.merge("ddpjobs", NAME, {"spec": spec})

    return act


def make_room(nodes: int, **spec: object) -> Act:
    """Makes room for this number of pods, and then changes these fields of the job's spec, if any."""

    async def act(user: User) -> None:
        await user.make_room(nodes)
        if spec:
            await change(**spec)(user)

    return act


async def rank_1_fails(user: User) -> None:
    """Makes rank 1 fail with an exit code."""
    await _tell(user, rank=1, exit_code="1")


async def all_ranks_finish(user: User) -> None:
    """Makes all ranks finish with 0."""
    await _tell(user)


async def let_time_be_over(user: User) -> None:
    """Sets a deadline that has already passed."""
    # The job has been active for at least this long, so the deadline has passed when it is set.
    await asyncio.sleep(2 * DEADLINE_SECONDS)
    await change(activeDeadlineSeconds=DEADLINE_SECONDS)(user)


async def _tell(user: User, rank: int | None = None, **how: str) -> None:
    """Ends the pods that run now, or only the pod of one rank."""
    told = [
        pod["metadata"]
        for pod in user.witness.pods()
        if phase_of(pod) == "runs" and rank in {None, (place_of(pod) or (None,))[0]}
    ]
    for again in range(TRIES):
        for metadata in told:
            annotations = steered(runs_for="0s", told=str(again), **how)
            await user.merge("pods", metadata["name"], {"metadata": {"annotations": annotations}})
        with suppress(NeverError):
            await user.witness.until("ended", lambda there: _ended(there, told), HEARING_SECONDS)
            return
    raise NeverError(f"the nodes do not hear that pods are to end\n{user.witness}")


def _ended(there: Witness, told: list[Manifest]) -> bool:
    pods = there.objects["pods"]
    return all(phase_of(pods[one["uid"]]) != "runs" for one in told if one["uid"] in pods)
