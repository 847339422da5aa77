"""What must never happen. Each promise is checked whenever the operator does something that could break it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ddpjob_operator.api import CleanPodPolicy, ConditionType, DDPJobStatus, DisruptionPolicy, RestartAction
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine import (
    DISRUPTION_BUDGET,
    KUEUE_WORKLOAD,
    WORKLOAD,
    Create,
    Decision,
    Manifest,
    Patch,
    Resize,
    Snapshot,
    Tell,
    decide,
)
from ddpjob_operator.engine.incidents.evidence import OOM_KILLED
from ddpjob_operator.engine.incidents.judgement import DEFAULTS
from ddpjob_operator.engine.manifests.names import present_pod_name
from ddpjob_operator.engine.manifests.volumes import failure_of
from ddpjob_operator.engine.policies.going_back import NOT_OF_THE_CODE
from ddpjob_operator.engine.view import LOST_AFTER, View

from tests.unit.engine.prose import deeds, in_other_words

from .kueue import NODE_SELECTOR, Place
from .pods import RealPod, config_map, digest_of

if TYPE_CHECKING:
    from .world import World

POD_GROUP = "PodGroup"
ENDS_ALL = {Reason.DEADLINE_EXCEEDED, Reason.START_DEADLINE_EXCEEDED, Reason.RANK_ZERO_SUCCEEDED, Reason.CANCELLED}
"""Reasons for an end at which all pods stop, whatever cleanPodPolicy says."""

AT_ONCE = 4
"""How many statuses may follow from one moment while nothing else happens. More than that would be a circle."""


@dataclass
class Books:
    """What was spent and done, as counted by the test."""

    made: dict[str, int] = field(default_factory=dict)
    """How many pods with each name have existed."""
    beside: set[tuple[str, str]] = field(default_factory=set)
    """The Workloads and PodGroups that have existed, by kind and name."""
    group_of: dict[int, str] = field(default_factory=dict)
    """The name of the PodGroup for each start of the whole gang."""
    grouped: bool = False
    """Whether the operator could create PodGroups when it last read the state."""
    seen_going: frozenset[str] = frozenset()
    """The names of pods that were being deleted when the operator last read the state."""
    queued: bool = False
    """Whether a queue had to admit the job when the operator last read the state."""
    places: tuple[Place, ...] = ()
    """The job's places in queues at that time."""
    quota: int | None = None
    """How many pods the queue's quota allowed at that time; None for any number."""
    idle: bool = True
    """Whether no pod of the job could run at that time."""
    ended: set[str] = field(default_factory=set)
    """The names of pods that the operator has deleted."""
    finished: set[str] = field(default_factory=set)
    """The names of pods whose trainers ended with 0 before anybody told them to stop, even if the pods are gone by
    now."""
    costs: dict[int, RestartAction] = field(default_factory=dict)
    """The price of the incident that ended each attempt."""
    healthy_since: int = 0
    """The last attempt that ran for a whole window. The prices of earlier attempts no longer count."""

    def copy(self) -> "Books":
        """A copy that changes independently from now on."""
        made, ended, finished = dict(self.made), set(self.ended), set(self.finished)
        beside, group_of = set(self.beside), dict(self.group_of)
        own = {"made": made, "ended": ended, "finished": finished, "beside": beside, "group_of": group_of}
        return replace(self, **own, costs=dict(self.costs))

    @property
    def held(self) -> bool:
        """Whether the job had to wait for its queue when the operator last read the state."""
        return self.quota == 0

    def looks(self, world: "World") -> None:
        """Records what the operator sees when it reads the state."""
        self.grouped = world.groups.served
        self.seen_going = frozenset(pod.name for pod in world.pods.values() if pod.deleting)
        kueue, created = world.kueue, world.status.is_true(ConditionType.CREATED)
        self.queued, self.places, self.quota = kueue.queue is not None, kueue.places, None
        self.idle = all(pod.exit for pod in world.pods.values())
        if self.queued and kueue.served:
            self.quota = kueue.quota()
        # Without Kueue, a gang that exists keeps running and is restarted after incidents, but no new job starts.
        elif self.queued and not created:
            self.quota = 0

    def count(self, action: RestartAction, *, since: int = 0) -> int:
        """How many incidents were answered with this action, in attempts from `since` on."""
        return sum(cost is action and attempt >= since for attempt, cost in self.costs.items())


def check_gang(world: "World") -> None:
    """Checks that the pods that train are one gang.

    They belong to one start, each rank occurs only once, and they have the same world size. Without supervisors they
    also have the same master.
    """
    gang = [pod for pod in world.live if pod.trains]
    ranks = [pod.rank for pod in gang]
    assert len(set(ranks)) == len(ranks), f"two live pods of one rank: {ranks}"
    worlds = {
        (pod.start, pod.world_size, *(() if world.supervised else (pod.incarnation, pod.master))) for pod in gang
    }
    assert len(worlds) <= 1, f"a world of mixed attempts: {worlds}"
    view = View(world.seen())
    kept = [pod for pod in view.snapshot.pods if pod.name in view.kept]
    assert len(kept) <= 3, f"more than the last three incidents' first pods: {kept}"
    assert not any(pod.active for pod in kept), f"kept although it may still run: {kept}"


def check_words(snapshot: Snapshot, decision: Decision) -> None:
    """Checks that no decision depends on a text that was written for people."""
    other = in_other_words(snapshot)
    said, status = other.job.status, snapshot.job.status
    assert deeds(other, decide(other)) == deeds(snapshot, decision), (
        f"decided otherwise where {status.state} ({status.message}) was called {said.state} ({said.message})"
    )


def check_said(snapshot: Snapshot, decision: Decision) -> None:
    """Checks that the status settles quickly while nothing happens, instead of changing back and forth."""
    said: list[DDPJobStatus] = []
    while (status := decision.status) is not None:
        said.append(status)
        assert len(said) <= AT_ONCE, f"nothing happens, and the status changes: {said}"
        snapshot = replace(snapshot, job=snapshot.job.model_copy(update={"status": status}))
        decision = decide(snapshot)


def check_creation(world: "World", pod: RealPod) -> None:
    """Checks that no pod is created too often, too early, or again."""
    assert not world.status.finished, "a finished job gets no pods"
    assert not world.status.is_true(ConditionType.FAILURE_TARGET), "a job that is to fail gets no pods"
    assert pod.rank not in world.status.completed(), "who has finished is not recreated"
    back = not pod.reserve and pod.name in world.books.ended
    assert not back, "a pod that the operator has ended does not come back, unless it only looks out for a place"
    old = [other.name for other in world.live if other.start != pod.start or other.rank == pod.rank]
    assert not old, f"{pod.name} was created while {old} live, in another gang or of its rank"
    assert pod.reserve == (pod.rank >= pod.world_size), "who has no rank in the world never trains, and nobody else"
    group = world.status.pod_group if world.books.grouped and not pod.reserve else None
    assert pod.group == group, "who trains names its attempt's PodGroup, and nobody else"
    assert group is None or (POD_GROUP, group) in world.books.beside, "no pod comes before its PodGroup"
    if pod.code is not None:
        assert config_map(pod.code) in world.config_maps, "it waits for code that is deleted"
        failed = world.status.code and world.status.code.failed
        assert not failed or failed.digest != digest_of(pod.code), "code that has failed is not tried again"
    quota = world.books.quota
    if quota is not None:
        assert len(world.live) < quota, f"a pod comes before it is admitted, or too many: {quota}"
        assert pod.rank < quota, "what has no quota does not look out for a place either"
        assert pod.selector == NODE_SELECTOR, "its queue has admitted it for these nodes"


def check_code(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that new code that fails before its first step gives way to the former code, at no cost.

    What may cost is what supervisors report of code that they do not know to be new, because rank 0's is new itself.
    """
    known, spec, first = before.code, world.job.spec.code, after.last_incident
    failed = after.code.failed if after.code else None
    if failed and not (known and known.failed == failed) and failed.attempt not in world.supervisors.refused_in:
        spent = [(status.restarts, status.disruptions, status.incidents) for status in (before, after)]
        assert spent[0] == spent[1], "what is blamed on new code costs nothing"
    tries = known and spec and known.untried and known.revision == spec.revision and not failure_of(spec, known)
    if not known or not tries or first is None or first == before.last_incident:
        return
    if spec and spec.former == spec.config_map:  # The former code was sent again: there is no other one.
        return
    free = first.action is RestartAction.RESTART_FREE or first.cause in NOT_OF_THE_CODE
    told = first.attempt in {incident["attempt"] for incident in world.supervisors.incidents}
    assert free or told or first.attempt < (known.attempt or 0), f"untried code is to give way: {first}"


def check_group_creation(world: "World", manifest: Manifest) -> None:
    """Checks the creation of a PodGroup or Workload.

    Each start of the whole gang has one PodGroup and, created before it, one Workload. Both are deleted with the job,
    as pods are.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    owners = [owner["uid"] for owner in manifest["metadata"]["ownerReferences"]]
    assert owners == [world.job.metadata.uid], "it would be left behind when the job is gone"
    start, books = world.status.bookkeeping.incarnations.default, world.books
    assert books.group_of.setdefault(start, name) == name, "an attempt has one PodGroup"
    assert [*books.group_of.values()].count(name) == 1, "and no other attempt has the same"
    assert kind != POD_GROUP or ("Workload", name) in books.beside, "no PodGroup comes before its Workload"
    books.beside.add((kind, name))


def check_group_deletion(world: "World", name: str) -> None:
    """Checks that only PodGroups of former attempts are deleted."""
    assert name != world.books.group_of.get(world.status.bookkeeping.incarnations.default), (
        f"{name} is this attempt's"
    )
    train = [pod.name for pod in world.live if pod.trains and pod.group == name]
    assert not train, f"{name} goes while {train} may still run"


def check_groups_of_gang(snapshot: Snapshot, decision: Decision) -> None:
    """Checks that a gang that is up has its PodGroup and its Workload, and that none of former attempts are left.

    A job that ends, or is suspended by its user or its queue, keeps those of the last attempt, because nothing is
    created at that time.
    """
    view, status, groups = View(snapshot), snapshot.job.status, snapshot.pod_groups
    over = view.winds_down or view.suspended or status.finished
    if groups is None or over or snapshot.refusal or not decision.empty or not view.up:
        return
    own = {status.pod_group} - {None}
    staying = {group.name for group in groups if group.name in own or not group.deleting}
    workloads = {*snapshot.owned[WORKLOAD]}
    assert (staying, workloads) == (own, own), "there is what the present attempt has, and nothing else"


def check_budget(snapshot: Snapshot, decision: Decision) -> None:
    """Checks that unsaved work is protected while all pods run, and that nothing holds up a drain at other times."""
    view, there = View(snapshot), snapshot.has(DISRUPTION_BUDGET)
    if there is None or snapshot.refusal or not decision.empty:
        return
    asked = view.spec.disruption is DisruptionPolicy.AFTER_CHECKPOINT
    first = view.status.first_run_time
    soon = first is not None and view.now < first + timedelta(hours=1)
    over = view.winds_down or view.status.finished
    assert there == (asked and view.up and soon and not over), "no pod of these histories ever saves"


def check_queue_entry(world: "World", manifest: Manifest) -> None:
    """Checks that a job has only one place in queues, which is deleted with the job."""
    owners = [owner["uid"] for owner in manifest["metadata"]["ownerReferences"]]
    assert owners == [world.job.metadata.uid], "it would be left behind when the job is gone"
    others = [one.name for one in world.kueue.places if one.name != manifest["metadata"]["name"]]
    assert not others, f"a second place, beside {others}"
    assert world.books.queued, "nobody has asked for it"
    assert not world.status.finished, "what has finished does not queue"


def check_queue_exit(world: "World", name: str) -> None:
    """Checks that no pod can run any more when the operator deletes a place for which quota is reserved."""
    keeps = any(one.name == name and one.seen.reserved and not one.seen.finished for one in world.kueue.places)
    assert not (keeps and world.books.queued and world.live), f"its quota goes to others while {world.live} run"


def check_queue_told(world: "World", action: Tell) -> None:
    """Checks that what the operator writes for a queue is true."""
    said = {kind: value for kind, value, *_ in action.conditions}
    assert not (action.releases and world.live), f"quota is given back while {world.live} may still run"
    assert action.releases == (said.get("QuotaReserved") is False), "and with it what it was admitted with"
    assert not said.get("Finished") or world.status.finished, "it has not finished"
    assert not said.get("PodsReady") or world.status.is_true(ConditionType.RUNNING), "its pods are not ready"


def check_queue_size(world: "World", place: Place, action: Resize) -> bool:
    """Whether Kueue allows this change of size while it reserves quota.

    Checks that the operator requests no other change, as far as it can know.
    """
    count, least = place.size
    lets = action.nodes <= count and action.least == least and action.nodes >= (least or 1)
    assert lets or place not in world.books.places, f"Kueue never lets that be: {place.size} to {action}"
    assert len(world.live) <= action.nodes, f"quota is given back that {world.live} use"
    return lets


def check_quiet_queue(world: "World", snapshot: Snapshot, decision: Decision) -> None:
    """Checks a job for which nothing is left to do: it has the right place, and the queue's information is right."""
    status, spec, kueue = snapshot.job.status, snapshot.job.spec, world.kueue
    if snapshot.refusal is not None and snapshot.now < snapshot.refusal.retry_at:
        changes = (action for action in decision.actions if isinstance(action, Create | Patch))
        again = [action for action in changes if action.kind is KUEUE_WORKLOAD]
        assert not again, f"what was refused is not tried again at once: {again}"
    if not decision.empty or snapshot.refusal is not None or not kueue.served:
        return
    active = View(snapshot).active
    staying = [one for one in kueue.places if not one.seen.deleting]
    if kueue.queue is None or (spec.suspend and not status.finished and not active):
        assert not staying, "who is in no queue has no place there"
        return
    assert not status.finished or all(one.seen.finished for one in staying), "the queue knows of the end"
    if status.finished or status.ending or spec.suspend:
        return
    if kueue.quota() == 0:
        left = [pod for pod in active if not pod.deleting]
        assert not left, f"these do not go although the queue wants their quota: {left}"
        assert active or kueue.places, "who waits for a queue has a place there"
        given_back = not any(one.seen.reserved and one.seen.evicted for one in staying)
        assert active or given_back, "what nobody uses is given back"
    least = spec.elastic.min_nodes if spec.elastic else None
    wanted = kueue.queue.name, (spec.nodes, least), spec.trainer.get("resources")
    asked = [(one.seen.queue, one.size, one.resources) for one in staying if not one.seen.reserved]
    assert active or all(one == wanted for one in asked), f"it asks for what its user wants: {wanted}, not {asked}"
    ready = [one.seen.ready for one in kueue.reserved if kueue.quota()]
    assert all(ready) or not status.is_true(ConditionType.RUNNING), "the queue knows that all pods are ready"


def check_deletion(world: "World", pod: RealPod, grace: int | None) -> None:
    """Checks that a pod leaves the API only after its trainer has ended, unless that end cannot be reported."""
    over = world.status.ending or world.status.finished
    may_save = grace is None or (grace == 0 and pod.dead) or not world.books.held or over or not pod.trains
    assert may_save, f"{pod.name} gives its quota back, and has no time to save"
    forced = grace == 0 and pod.trains and pod.node is not None
    assert not forced, f"{pod.name} is gone for the API, and its trainer may go on"
    if grace == 0 and pod.dead and pod.exit is None and not pod.reserve:
        assert world.settings.force_delete_lost_pods, "nobody has permitted it"
        assert pod.gone_by is not None
        assert world.now >= pod.gone_by + LOST_AFTER


def check_job_deletion(world: "World") -> None:
    """Checks that a job is deleted only when it has finished and its time is over."""
    status, seconds = world.status, world.job.spec.ttl_seconds_after_finished
    assert status.finished
    assert status.completion_time is not None
    assert seconds is not None
    assert world.now >= status.completion_time + timedelta(seconds=seconds)


def check_status(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that each change of the status leads from one true status to another."""
    _check_counters(world, before, after)
    _check_verdict(before, after)
    _check_success(world, before, after)
    _check_blame(world, before, after)
    _check_budget(world, before, after)
    _check_history(after)
    _check_size(world, before, after)
    _check_group(world, before, after)
    _check_queued(world, before, after)
    if (after.finished and not before.finished) or after.is_true(ConditionType.SUSPENDED):
        running = [pod for pod in world.live if not _may_go_on(world, after, pod)]
        assert not running, f"neither a finished nor a suspended job has anything that runs: {running}"
    if before.finished:
        assert (before.conditions, before.completion_time) == (after.conditions, after.completion_time)


def _check_verdict(before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that an incident is judged only once, unless a fact about it turns out to be different."""
    then, now = before.last_incident, after.last_incident
    if then is None or now is None or then.attempt != now.attempt:
        return
    if (then.cause, then.exit_code, then.signal) == (now.cause, now.exit_code, now.signal):
        assert (then.action, then.rule) == (now.action, now.rule), f"judged anew: {then} -> {now}"


def _check_success(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that a job succeeds only if its ranks have finished.

    Ranks that saved and exited with 0 because they were told to stop do not count.
    """
    assert not _unfinished(world, after.completed()), f"these have not finished: {after.completed_indexes}"
    decided = after.condition(ConditionType.SUCCESS_CRITERIA_MET)
    if decided is None or before.is_true(ConditionType.SUCCESS_CRITERIA_MET):
        return
    count = 1 if decided.reason == Reason.RANK_ZERO_SUCCEEDED else after.nodes or 0
    undone = _unfinished(world, range(count))
    assert not undone, f"{decided.reason}, and these have not finished: {undone}"


def _unfinished(world: "World", ranks: Iterable[int]) -> list[int]:
    """Those of these ranks whose present pod has not finished."""
    return [rank for rank in ranks if present_pod_name(world.job, rank) not in world.books.finished]


def _check_blame(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that neither the job is blamed if a node has lost a pod's sandbox, nor a rank that has finished.

    With supervisors, any of their incidents may become known late.
    """
    failure = after.last_incident
    if failure is not None and failure != before.last_incident and not world.supervised:
        assert failure.node not in before.completed(), f"who has finished does not fail: {failure}"
    pod = world.pods.get(failure.pod) if failure and failure != before.last_incident else None
    if failure is None or pod is None or not pod.sandbox_lost or world.supervised:
        return
    otherwise = pod.deleting or pod.reason or (pod.exit is not None and pod.exit.reason == OOM_KILLED)
    assert otherwise or DEFAULTS[failure.cause] is RestartAction.RESTART_FREE, f"its node did it, not {failure}"


def _may_go_on(world: "World", status: DDPJobStatus, pod: RealPod) -> bool:
    """Whether the user wants a pod to outlive the job, and nobody else was seen to delete it."""
    reasons = {condition.reason for condition in status.conditions if condition.status == "True"}
    wanted = world.job.spec.clean_pod_policy is CleanPodPolicy.NONE and not reasons & ENDS_ALL
    return status.finished and wanted and pod.name not in world.books.seen_going


def _check_counters(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that every restart belongs to an incident, costs once, and is refunded at most once."""
    attempts = after.attempt - before.attempt
    _check_incarnations(world, before, after)
    assert 0 <= attempts <= (1 if not world.supervised else attempts)
    costs, failure = world.books.costs, after.last_incident
    restarts, disruptions = after.restarts - before.restarts, after.disruptions - before.disruptions
    match restarts, disruptions:
        case 0, 0:
            pass
        case (1, 0) | (0, 1):
            assert failure is not None
            assert attempts >= 1, "a restart is an attempt"
            ended = range(before.attempt, after.attempt)
            assert failure.attempt in ended, "it is the answer to an incident of the last one, or of one unheard of"
            assert failure.attempt not in costs, "an incident costs once"
            costs[failure.attempt] = RestartAction.RESTART if restarts else RestartAction.RESTART_FREE
        case -1, 1:
            assert failure is not None
            assert failure.attempt == max(costs), "what is refunded is the last incident"
            assert costs[failure.attempt] is RestartAction.RESTART, "only what was paid is refunded"
            costs[failure.attempt] = RestartAction.RESTART_FREE
        case _:
            raise AssertionError(f"{before} -> {after}")
    if failure is not None and failure.attempt in costs:
        known = {costs[failure.attempt], RestartAction.FAIL}
        assert failure.action in known, "the status says of an incident what it has cost"


def _check_incarnations(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks the incarnations after a restart.

    Every start of the whole gang has new pods with a higher incarnation than all before. If a single pod is replaced,
    its incarnation rises by one.
    """
    then, now = before.bookkeeping.incarnations, after.bookkeeping.incarnations
    if now.default != then.default:
        assert (now.default, now.exceptions) == (then.newest + 1, ()), "all pods are new"
        assert after.attempt > before.attempt, "a start of the whole gang is an attempt"
        return
    assert world.supervised or (after.attempt, now) == (before.attempt, then), "every attempt has pods of its own"
    younger = {rank: now.of(rank) - then.of(rank) for rank in range(before.nodes or 0)}
    assert set(younger.values()) <= {0, 1}
    if any(younger.values()):
        assert not all(younger.values()), "somebody has to be left to wait"


def _check_budget(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that neither counted nor free restarts exceed their limits within a window."""
    restart, books = world.job.spec.restart, world.books
    running = before.condition(ConditionType.RUNNING)
    if running is not None and running.status == "True":
        known = after.last_incident is not None and after.last_incident != before.last_incident
        until = min(after.last_incident.time, world.now) if known and after.last_incident else world.now
        if until - running.last_transition_time >= timedelta(seconds=restart.window_seconds):
            books.healthy_since = before.attempt
    elif before.last_incident and after.last_incident and after.last_incident.attempt > before.last_incident.attempt:
        # Both incidents became known at the same time.
        between = after.last_incident.time - before.last_incident.time
        if world.supervised and between >= timedelta(seconds=restart.window_seconds):
            books.healthy_since = after.last_incident.attempt
    counts = [books.count(action, since=books.healthy_since) for action in RestartAction]
    assert min(after.bookkeeping.budget.used, after.bookkeeping.budget.disruptions) >= 0, "nobody is owed a restart"
    if after.restarts > before.restarts:
        assert counts[0] <= restart.max_restarts, "more restarts than the budget allows"
    if after.disruptions > before.disruptions and restart.max_disruptions is not None:
        assert counts[1] <= restart.max_disruptions, "more disruptions than the budget allows"


def _check_history(after: DDPJobStatus) -> None:
    """Checks that the newest incident comes first.

    (That there are at most ten is checked when the status is read.)
    """
    attempts = [failure.attempt for failure in after.incidents]
    assert attempts == sorted(set(attempts), reverse=True), f"not the newest first: {attempts}"


def _check_size(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that the gang has the requested size or, if it is elastic, a smaller size within bounds."""
    if after.nodes == before.nodes:
        return
    spec = world.job.spec
    least = spec.elastic.min_nodes if spec.elastic else spec.nodes
    assert after.nodes is not None
    assert least <= after.nodes <= spec.nodes


def _check_queued(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that waiting for a queue costs nothing, and that no deadline counts down meanwhile."""
    if not world.books.held or before.ending or after.ending or after.finished or not world.kueue.served:
        return
    assert (after.restarts, after.disruptions) == (before.restarts, before.disruptions), "it costs nothing to wait"
    assert after.start_time is None or not world.books.idle, "no deadline runs while the job waits for its queue"


def _check_group(world: "World", before: DDPJobStatus, after: DDPJobStatus) -> None:
    """Checks that each start of the whole gang has its own PodGroup, if the cluster has any, and keeps it."""
    if after.bookkeeping.incarnations.default == before.bookkeeping.incarnations.default:
        assert after.pod_group == before.pod_group
    else:
        assert (after.pod_group is not None) == world.books.grouped
