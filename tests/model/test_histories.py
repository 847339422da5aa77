"""Random histories of a job. Whatever happens in whatever order, no promise is broken, and the job ends well.

`make search` tries many more histories.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.api import CleanPodPolicy, SuccessPolicy
from ddpjob_operator.engine import Ahead, Disruption, Queue, Settings, Waiting
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RULE_MARKER, RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.exit_codes import among
from tests.support.seed import examples

from .codes import CODED
from .groups import Groups
from .kueue import Kueue
from .operator import Operator
from .pods import RealPod, is_bad
from .promises import check_gang
from .world import TEMPLATE, World

# The exit code, the container runtime's reason, and the termination message.
EXITS: dict[str, tuple[int | None, str, str]] = {
    "an exception": (1, "Error", "ValueError: no"),
    "a code that has a rule": (3, "Error", ""),
    "a signal": (139, "Error", ""),
    "a kill": (137, "Error", ""),
    "out of memory": (137, "OOMKilled", ""),
    "out of memory in a child": (1, "OOMKilled", ""),
    "a lost peer": (1, "Error", "RuntimeError: Connection closed by peer"),
    "stopped by somebody": (143, "Error", ""),
    "saved and stopped": (205, "Error", ""),
    "nothing known": (None, "", ""),
    "a report of a lost peer": (
        1,
        "Error",
        json.dumps({"cause": "PeerLost", "message": "rank 1 is gone", "step": 7}),
    ),
    "an error at a step": (1, "Error", json.dumps({"cause": "Application", "message": "NaN", "step": 7})),
}
FINAL_EXITS: dict[str, tuple[int | None, str, str]] = {
    "bad input": (2, "Error", json.dumps({"cause": "ConfigError", "message": "no data"})),
    "no such program": (128, "StartError", "no such file"),
    "an init container": (None, "InitContainerFailed", "no"),
}
CODE_FAILS = {
    "out of memory": EXITS["out of memory"],
    "an exception": (1, "Error", json.dumps({"cause": "Application", "message": "NameError: modle"})),
    "bad input": FINAL_EXITS["bad input"],
}
# What a kubelet reports of a pod that it has ended: the pod's reason, and the reason of its condition
# DisruptionTarget, if it has one.
BY_KUBELET = {
    "short of memory": ("Evicted", "TerminationByKubelet"),
    "over its own limit": ("Evicted", ""),
    "node shutdown": ("Terminated", "TerminationByKubelet"),
    "no room after all": ("OutOfcpu", ""),
    "no label any more": ("NodeAffinity", ""),
}
WAITING = {
    "no image": Waiting("ImagePullBackOff", "manifest unknown"),
    "a registry that is away": Waiting("ImagePullBackOff", "i/o timeout"),
    "no ConfigMap": Waiting("CreateContainerConfigError", "configmap not found"),
    "slow": Waiting("PodInitializing"),
}
GROUP_GOES = ["itself", "its Workload", "both", "at once"]
QUEUES = [None, Queue("training"), Queue("training"), Queue("another"), Queue("training", "high")]
EVICTED = ["Preempted", "PodsReadyTimeout", "NodeFailures", "ClusterQueueStopped"]
RESOURCES = [{}, {"resources": {"requests": {"cpu": "4"}}}]
BY_CLUSTER = ["PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "SomethingNew"]

RULES = st.lists(
    st.sampled_from(
        [
            {"exitCodes": among(3, *range(130, 141)), "action": "RestartFree"},
            {"exitCodes": among(1, 2), "action": "Fail"},
            {"causes": ["OutOfMemory"], "action": "RestartFree"},
            {"causes": ["Stopped", "PodDeleted", "NodeLost"], "action": "Restart"},
            {"signals": ["SIGSEGV"], "action": "Fail"},
        ]
    ),
    max_size=2,
)
RESTART = st.fixed_dictionaries(
    {
        "maxRestarts": st.sampled_from([0, 1, 3, 100]),
        "windowSeconds": st.sampled_from([60, 10_000_000]),
        "backoffSeconds": st.sampled_from([0, 1, 100]),
    },
    optional={
        "maxDisruptions": st.sampled_from([0, 1, 3]),
        "gracePeriodSeconds": st.sampled_from([0, 5, 60]),
        "mode": st.just("Recreate"),
        "rules": RULES,
    },
)
SPECS = st.fixed_dictionaries(
    {"nodes": st.sampled_from([1, 2, 3, 12]), "restart": RESTART},
    optional={
        "activeDeadlineSeconds": st.sampled_from([100, 10_000]),
        "startDeadlineSeconds": st.sampled_from([50, 300]),
        "scheduleTimeoutSeconds": st.sampled_from([60, 600]),
        "successPolicy": st.just("RankZero"),
        "finishTimeoutSeconds": st.sampled_from([60, 300]),
        "cleanPodPolicy": st.sampled_from(["None", "All"]),
        "ttlSecondsAfterFinished": st.sampled_from([0, 100]),
        "network": st.just({"policy": "Enabled"}),
        "suspend": st.just(value=True),
        "disruption": st.just("AfterCheckpoint"),
        "elastic": st.fixed_dictionaries({"shrinkAfterSeconds": st.sampled_from([10, 100])}),
        "scheduling": st.sampled_from([{"schedulingPolicy": policy} for policy in ({"basic": {}}, {"gang": {}})]),
    },
)
ADMITTED = st.sampled_from([12, 2, 0])
KUEUES = st.sampled_from([Kueue(served=True), *[Kueue(Queue("training"), served=True)] * 3, Kueue()])
SETTINGS = st.builds(Settings, force_delete_lost_pods=st.booleans())
ROUNDS_TO_THE_END = 40

STEPS = {"look": Operator.look, "write": Operator.write, "act": Operator.act, "round": Operator.round}
PATIENT = ["round", "round round", "round round round"]
HASTY = ["", "look", "look write", "look write act", "look write act act", "write", "act", "write act", "act act"]
OPERATOR = st.sampled_from(PATIENT * 3 + HASTY)
"""What the operator does before the next event. When it reads the state, it forgets actions that were not carried
out."""

which = st.integers(0, 7)
some = st.integers(1, 2**12 - 1)


def happens(*, when: Callable[["Histories"], Any] = bool, **draws: Any) -> Callable[[Callable[..., None]], Any]:
    """Defines an event of the world, with its precondition. After the event, the operator does some steps."""

    def of(change: Callable[..., None]) -> Any:
        def step(self: "Histories", then: str, **drawn: Any) -> None:
            change(self, **drawn)
            self.operate(then)

        step.__name__ = change.__name__
        where_it_can: Any = precondition(when)
        ruled: Any = rule(then=OPERATOR, **draws)
        return where_it_can(ruled(step))

    return of


class Histories(RuleBasedStateMachine):
    """Pods, nodes, user, clock and operator take turns in any order."""

    @initialize(
        spec=SPECS,
        taken=st.sampled_from([False, False, True]),
        allowed=SETTINGS,
        reads_nodes=st.booleans(),
        groups=st.builds(Groups, st.booleans()),
        kueue=KUEUES,
        budget=st.sampled_from([None, False, False, False]),
        admitted=ADMITTED,
    )
    def submit(self, spec: dict[str, Any], allowed: Settings, admitted: int, **there: Any) -> None:
        self.world = World({**spec, "template": TEMPLATE}, settings=allowed, **there)
        self.operator = Operator(self.world)
        self.be_admitted(admitted)

    def be_admitted(self, nodes: int) -> None:
        """If a queue has to admit the job, makes it do so immediately, with this number of nodes (0: not at all)."""
        if self.world.kueue.queue and nodes:
            self.operate("round round")
            self.world.kueue = self.world.kueue.admits(nodes)

    def operate(self, steps: str) -> None:
        for step in steps.split():
            STEPS[step](self.operator)

    # Pods.

    def pick(self, pods: list[RealPod], index: int) -> RealPod:
        return pods[index % len(pods)]

    def pick_some(self, pods: list[RealPod], bits: int) -> list[RealPod]:
        return [pod for index, pod in enumerate(pods) if bits >> index & 1]

    @property
    def waiting(self) -> list[RealPod]:
        return [pod for pod in self.world.live if pod.waits]

    @property
    def training(self) -> list[RealPod]:
        """Pods whose trainer may end. They must have a node, because otherwise it cannot have run."""
        return [pod for pod in self.world.live if pod.trains and pod.node is not None]

    @property
    def running(self) -> list[RealPod]:
        """Pods whose trainer runs."""
        return [pod for pod in self.training if pod.running]

    @property
    def told(self) -> list[RealPod]:
        """Pods that still run but are to end."""
        ends = (self.world.going, self.world.stopping, (pod for pod in self.running if pod.sandbox_lost))
        return [pod for pods in ends for pod in pods if pod.live]

    @happens(index=which, when=lambda self: self.waiting)
    def pod_is_placed(self, index: int) -> None:
        self.world.place(self.pick(self.waiting, index))

    @happens(index=which, when=lambda self: self.waiting)
    def pod_starts(self, index: int) -> None:
        self.world.start(self.pick(self.waiting, index))

    @happens(when=lambda self: self.waiting)
    def all_pods_start(self) -> None:
        for pod in self.waiting:
            self.world.start(pod)

    @happens(index=which, why=st.sampled_from(sorted(WAITING)), when=lambda self: self.waiting)
    def pod_cannot_start_yet(self, index: int, why: str) -> None:
        pod = self.pick(self.waiting, index)
        pod.waiting = WAITING[why] if pod.node else Waiting("Unschedulable", "0/3 nodes are available")

    @happens(index=which, how=st.sampled_from(sorted(EXITS)), when=lambda self: self.training)
    def pod_fails(self, index: int, how: str) -> None:
        self.world.end(self.pick(self.training, index), *EXITS[how])

    @happens(
        index=which,
        how=st.sampled_from(sorted(FINAL_EXITS)),
        really=st.integers(0, 9),
        when=lambda self: self.training,
    )
    def pod_fails_for_good(self, index: int, how: str, really: int) -> None:
        if really == 0:
            self.world.end(self.pick(self.training, index), *FINAL_EXITS[how])

    @happens(index=which, lingering=st.booleans(), when=lambda self: self.running)
    def pod_succeeds(self, index: int, *, lingering: bool) -> None:
        pod = self.pick(self.running, index)
        self.world.end(pod, 0, "Completed")
        pod.lingering = lingering

    @happens(index=which, when=lambda self: self.world.pods)
    def pod_vanishes(self, index: int) -> None:
        self.world.remove(self.pick(list(self.world.pods.values()), index))

    @happens(which_ones=some, when=lambda self: self.world.pods)
    def pods_are_deleted_by_hand(self, which_ones: int) -> None:
        for pod in self.pick_some(list(self.world.pods.values()), which_ones):
            self.world.delete(pod)

    @happens(index=which, why=st.sampled_from(BY_CLUSTER), when=lambda self: self.world.live)
    def pod_is_taken_away(self, index: int, why: str) -> None:
        self.world.take_away(self.pick(self.world.live, index), why)

    @happens(index=which, how=st.sampled_from(sorted(BY_KUBELET)), when=lambda self: self.training)
    def pod_is_ended_by_its_kubelet(self, index: int, how: str) -> None:
        pod = self.pick(self.training, index)
        reason, disruption = BY_KUBELET[how]
        self.world.end(pod, 137 if pod.running else None, "Error" if pod.running else reason)
        pod.reason, pod.disruption = reason, Disruption(disruption) if disruption else None

    @happens(index=which, when=lambda self: self.world.going)
    def deleted_pod_is_gone(self, index: int) -> None:
        self.world.remove(self.pick(self.world.going, index))

    @happens(
        index=which,
        code=st.sampled_from([0, 1, 137, 143, 205]),
        all_of_them=st.booleans(),
        when=lambda self: self.told,
    )
    def pods_end_as_they_were_told_to(self, index: int, code: int, *, all_of_them: bool) -> None:
        for pod in self.told if all_of_them else [self.pick(self.told, index)]:
            self.world.end(pod, code)

    @happens(index=which, when=lambda self: self.running)
    def pod_loses_its_sandbox(self, index: int) -> None:
        self.world.lose_sandbox(self.pick(self.running, index))

    # Nodes.

    @happens(index=which, when=lambda self: any(pod.node for pod in self.world.live))
    def node_dies(self, index: int) -> None:
        self.world.lose(str(self.pick([pod for pod in self.world.live if pod.node], index).node))

    @happens(but=st.integers(0, 3), when=lambda self: any(pod.node for pod in self.world.live))
    def all_nodes_die_but_a_few(self, but: int) -> None:
        for pod in [pod for pod in self.world.live if pod.node][but:]:
            self.world.lose(str(pod.node))

    @happens(deletes=st.booleans(), when=lambda self: self.world.lost)
    def cluster_notices_lost_nodes(self, *, deletes: bool) -> None:
        for node in self.world.lost:
            self.world.notice(node, deletes=deletes)

    @happens(when=lambda self: self.world.lost)
    def node_comes_back(self) -> None:
        self.world.find(next(iter(self.world.lost)))

    # The scheduler.

    @happens(when=lambda self: self.world.groups.unplaced)
    def scheduler_has_no_room_for_the_gang(self) -> None:
        for group in self.world.groups.unplaced:
            group.waiting = Waiting("Unschedulable", "minCount cannot be satisfied")

    @happens(index=which, how=st.sampled_from(GROUP_GOES), when=lambda self: self.world.groups.there)
    def group_is_deleted_by_hand(self, index: int, how: str) -> None:
        groups = self.world.groups
        name = sorted(groups.there)[index % len(groups.there)]
        if how != "its Workload":
            groups.delete(name)
        if how != "itself":
            groups.workloads -= {name}
        if how == "at once":
            del groups.there[name]

    @happens(when=lambda self: self.world.budget)
    def somebody_deletes_its_disruption_budget(self) -> None:
        self.world.budget = False

    @happens()
    def cluster_has_groups_or_has_them_no_more(self) -> None:
        self.world.groups.served = not self.world.groups.served

    # The queue.

    @happens(nodes=st.sampled_from([None, 1, 2]), when=lambda self: self.world.kueue.unreserved)
    def queue_admits_the_job(self, nodes: int | None) -> None:
        self.world.kueue = self.world.kueue.admits(nodes)

    @happens(nodes=st.sampled_from([None, 1, 2]), when=lambda self: self.world.kueue.unreserved)
    def others_have_still_to_agree(self, nodes: int | None) -> None:
        self.world.kueue = self.world.kueue.reserves(nodes)

    @happens(when=lambda self: self.world.kueue.reserved)
    def others_agree_to_that(self) -> None:
        self.world.kueue = self.world.kueue.admits()

    @happens(reason=st.sampled_from(["Pending", "Inadmissible"]), when=lambda self: self.world.kueue.unreserved)
    def queue_has_no_room(self, reason: str) -> None:
        self.world.kueue = self.world.kueue.waits(reason)

    @happens(reason=st.sampled_from(EVICTED), when=lambda self: self.world.kueue.reserved)
    def queue_wants_its_quota_back(self, reason: str) -> None:
        self.world.kueue = self.world.kueue.evicts(reason)

    @happens(back=st.booleans(), when=lambda self: self.world.kueue.places)
    def place_is_deactivated_or_activated(self, *, back: bool) -> None:
        self.world.kueue = self.world.kueue.activates() if back else self.world.kueue.deactivates()

    @happens(at_once=st.booleans(), when=lambda self: self.world.kueue.places)
    def place_is_deleted_by_hand(self, *, at_once: bool) -> None:
        self.world.kueue = self.world.kueue.deletes(at_once=at_once)

    @happens(when=lambda self: any(one.seen.deleting for one in self.world.kueue.places))
    def place_is_gone(self) -> None:
        self.world.kueue = self.world.kueue.let_go()

    @happens(queue=st.sampled_from(QUEUES))
    def user_changes_the_queue(self, queue: Queue | None) -> None:
        self.world.queue_up(queue)

    @happens(resources=st.sampled_from(RESOURCES), when=lambda self: self.world.kueue.places)
    def user_changes_what_pods_need(self, resources: dict[str, Any]) -> None:
        pod = self.world.spec["template"]["spec"]
        trainer = {**pod["containers"][0], "resources": {}, **resources}
        self.world.ask(template={"spec": {**pod, "containers": [trainer]}})

    @happens(really=st.integers(0, 3), what=st.sampled_from(["served", "refuses", "knows_flavors"]))
    def cluster_has_kueue_or_not(self, really: int, what: str) -> None:
        kueue = self.world.kueue
        if really == 0:
            self.world.kueue = replace(kueue, **{what: not getattr(kueue, what)})

    # The rest of the world.

    @happens(seconds=st.sampled_from([0.5, 5.0, 70.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @happens(suspend=st.sampled_from([True, False, False]))
    def user_suspends_or_resumes(self, *, suspend: bool) -> None:
        self.world.ask(suspend=suspend)

    @happens(meanwhile=OPERATOR)
    def user_suspends_and_thinks_better_of_it(self, meanwhile: str) -> None:
        self.world.ask(suspend=True)
        self.operate(meanwhile)
        self.world.ask(suspend=False)

    @happens(really=st.integers(0, 7))
    def user_cancels(self, really: int) -> None:
        self.world.ask(cancel=really == 0)

    @happens(nodes=st.integers(1, 3))
    def user_resizes(self, nodes: int) -> None:
        elastic = self.world.spec.get("elastic")
        smaller = {"minNodes": min(nodes, elastic.get("minNodes", 1))} if elastic else {}
        self.world.ask(nodes=nodes, elastic=elastic and elastic | smaller)

    @happens(least=st.integers(0, 3), seconds=st.sampled_from([10, 100]))
    def user_changes_how_few_nodes_will_do(self, least: int, seconds: int) -> None:
        few = {"minNodes": min(least, self.world.spec["nodes"]), "shrinkAfterSeconds": seconds}
        self.world.ask(elastic=few if least else None)

    @happens(rules=RULES, most=st.sampled_from([0, 3, 100]))
    def user_changes_the_rules(self, rules: list[dict[str, Any]], most: int) -> None:
        restart = {**self.world.spec["restart"], "rules": rules, "maxRestarts": most, "maxDisruptions": most}
        self.world.ask(restart=restart)

    @happens(
        seconds=st.sampled_from([None, 100, 300]),
        to_start=st.sampled_from([None, 50, 300]),
        success=st.sampled_from(list(SuccessPolicy)),
    )
    def user_changes_deadlines_and_what_success_is(
        self, seconds: int | None, to_start: int | None, success: SuccessPolicy
    ) -> None:
        self.world.ask(activeDeadlineSeconds=seconds, startDeadlineSeconds=to_start, successPolicy=str(success))

    @happens(policy=st.sampled_from(list(CleanPodPolicy)), seconds=st.sampled_from([None, 0, 1000]))
    def user_thinks_of_what_is_to_stay(self, policy: CleanPodPolicy, seconds: int | None) -> None:
        self.world.ask(cleanPodPolicy=str(policy), ttlSecondsAfterFinished=seconds)

    @happens(taken=st.booleans())
    def service_is_deleted(self, *, taken: bool) -> None:
        """Deletes the Service. Somebody may take its name."""
        self.world.services, self.world.taken = frozenset(), taken

    @happens()
    def quota_is_met_or_raised(self) -> None:
        self.world.full = not self.world.full

    @happens(jobs=st.integers(0, 2))
    def other_jobs_come_first_or_find_nodes(self, jobs: int) -> None:
        self.world.ahead = Ahead(jobs, self.world.now) if jobs else None

    @happens()
    def network_policy_is_removed(self) -> None:
        self.world.network_policy = False

    @happens()
    def operator_dies(self) -> None:
        self.operator.die()

    # What must always be true.

    @invariant()
    def pods_that_train_are_one_gang(self) -> None:
        if not self.world.deleted:
            check_gang(self.world)

    def teardown(self) -> None:
        """After the last fault, the job ends, or is suspended and ends after that.

        Then nothing is left to do, except to delete the job when its time is over.
        """
        if not hasattr(self, "world"):
            return
        self.operator.die()
        self.drive_to_rest()
        self.world.ask(suspend=False)
        self.drive_to_rest()
        assert self.world.deleted or self.world.status.finished

    def drive_to_rest(self) -> None:
        for _ in range(ROUNDS_TO_THE_END):
            self.operator.round()
            self.operator.look()
            if self.at_rest():
                break
            self.all_goes_well()
        self.check_rest()

    def at_rest(self) -> bool:
        world, status = self.world, self.world.status
        suspended = world.spec.get("suspend", False) and status.state == "Suspended"
        decision, refusal = self.operator.decision, self.operator.refusal
        # The operator will try again to write something for the queue.
        retries = refusal is not None and decision.wake_at == refusal.retry_at
        settled = decision.empty and not world.going and not retries
        return world.deleted or ((status.finished or suspended) and settled)

    def all_goes_well(self) -> None:
        world = self.world
        world.full, world.ahead = False, None
        kueue = replace(world.kueue, served=True, refuses=False, knows_flavors=True)
        world.kueue = kueue.let_go().activates().admits()
        world.taken = False
        for pod in world.going:
            world.remove(pod)
        for node in world.lost:
            world.notice(node, deletes=True)
        for pod in world.stopping:
            world.end(pod, 205)
        for pod in world.live:
            if pod.running:
                world.end(pod, 0, "Completed")
            elif pod.waits:
                world.start(pod)
        for pod in world.pods.values():
            pod.lingering = False
        world.now = max(world.now, self.operator.decision.wake_at or world.now) + timedelta(milliseconds=1)

    def check_rest(self) -> None:
        world = self.world
        assert self.at_rest(), f"after {ROUNDS_TO_THE_END} rounds: {world.status}\n{world.pods}"
        if world.deleted:
            return
        self.operator.round()
        self.operator.look()
        assert self.operator.decision.empty
        stays = world.spec.get("cleanPodPolicy") == CleanPodPolicy.NONE
        assert stays or not world.live, f"left over: {world.live}"
        waits_for_loss = world.settings.force_delete_lost_pods and any(pod.deleting for pod in world.pods.values())
        if world.status.finished and not waits_for_loss and (wake_at := self.operator.decision.wake_at):
            world.now = wake_at
            self.operator.round()
            assert world.deleted, "a finished job wakes up for nothing but its deletion"


class Supervised(Histories):
    """The same histories with supervisors in the pods, so that a running gang also restarts in place."""

    @initialize(
        spec=SPECS,
        allowed=SETTINGS,
        reads_nodes=st.booleans(),
        groups=st.builds(Groups, st.booleans()),
        kueue=KUEUES,
        admitted=ADMITTED,
    )
    def submit(  # type: ignore[override]
        self, spec: dict[str, Any], allowed: Settings, admitted: int, **there: Any
    ) -> None:
        whole = {**spec, "suspend": False, "template": CODED}
        self.world = World(whole, settings=allowed, supervised=True, **there)
        self.operator = Operator(self.world)
        self.be_admitted(admitted)
        self.come_up()

    def come_up(self) -> None:
        """Starts all pods. Their supervisors meet, and the operator reads their report."""
        self.operate("round round")
        if self.world.kueue.unreserved:
            self.world.kueue = self.world.kueue.admits()
            self.operate("round round")
        for pod in self.waiting:
            self.world.start(pod)
        self.world.meet()
        self.world.hear()
        self.operate("round round")

    @happens()
    def all_goes_on(self) -> None:
        for pod in self.world.going:
            self.world.remove(pod)
        self.world.pass_time(2)
        self.come_up()

    @happens(hears=st.booleans())
    def supervisors_meet(self, *, hears: bool) -> None:
        self.world.meet()
        if hears:
            self.world.hear()

    @happens(
        index=which,
        cause=st.sampled_from(["Application", "Application", "PeerLost", "Stalled", "ConfigError"]),
        again=st.booleans(),
        hears=st.booleans(),
        when=lambda self: self.world.supervisors.restarts,
    )
    def gang_restarts_in_place(self, index: int, cause: str, *, again: bool, hears: bool) -> None:
        world = self.world
        world.fail(index, cause)
        if again:
            world.meet()
        if hears:
            world.hear()

    @happens(
        code=st.integers(0, 4),
        applies=st.sampled_from([True, True, True, False]),
        again=st.booleans(),
        hears=st.booleans(),
        when=lambda self: self.world.supervisors.runs,
    )
    def user_sends_new_code(self, code: int, *, applies: bool, again: bool, hears: bool) -> None:
        self.world.send_code(code, applies=applies)
        if again:
            self.world.meet()
        if hears:
            self.world.hear()

    @happens(
        index=which,
        hears=st.booleans(),
        when=lambda self: self.world.supervisors.restarts and is_bad(self.world.supervisors.codes.code),
    )
    def new_code_fails_in_place(self, index: int, *, hears: bool) -> None:
        self.world.fail(index, "Application")
        self.world.meet()
        if hears:
            self.world.hear()

    @happens(hears=st.booleans(), when=lambda self: self.world.supervisors.runs)
    def gang_finishes_a_step(self, *, hears: bool) -> None:
        self.world.finish_step()
        if hears:
            self.world.hear()

    @happens(
        index=which,
        how=st.sampled_from([*CODE_FAILS]),
        hears=st.booleans(),
        when=lambda self: self.world.supervisors.runs and is_bad(self.world.supervisors.codes.code),
    )
    def new_code_costs_a_pod(self, index: int, how: str, *, hears: bool) -> None:
        """The supervisors do not know the former code, or the pod is lost with the untried code."""
        if hears:
            self.world.hear()
        if self.running:
            self.world.end(self.pick(self.running, index), *CODE_FAILS[how])

    @happens(index=which, when=lambda self: (self.world.status.nodes or 1) > 1)
    def supervisor_is_cut_off(self, index: int) -> None:
        self.world.supervisors.lose(1 + index % ((self.world.status.nodes or 1) - 1), self.world.now)
        self.world.hear()

    @happens(when=lambda self: self.world.supervisors.missed is not None)
    def supervisor_is_found(self) -> None:
        self.world.supervisors.lose(None, self.world.now)

    @happens()
    def supervisors_are_heard(self) -> None:
        self.world.hear()

    @happens()
    def supervisors_are_not_heard(self) -> None:
        self.world.hear_nothing()

    @happens(when=lambda self: self.world.seen().answered.witness)
    def rank_0_is_out_of_reach_for_all(self) -> None:
        self.world.hear_another()
        self.world.pass_time(60)

    @happens()
    def what_was_heard_is_forgotten(self) -> None:
        self.world.report = self.world.witness = None

    def all_goes_well(self) -> None:
        self.world.supervisors.missed = None
        super().all_goes_well()


class Recoded(Supervised):
    """Those in which new code is sent to a gang that runs; and nothing happens that does not matter to code."""

    @initialize(
        spec=SPECS,
        allowed=SETTINGS,
        steps=st.booleans(),
        code=st.sampled_from([1, 1, 2]),
        applies=st.sampled_from([True, True, True, False]),
        hears=st.booleans(),
    )
    def submit(  # type: ignore[override]
        self,
        spec: dict[str, Any],
        allowed: Settings,
        code: int,
        *,
        steps: bool,
        applies: bool,
        hears: bool,
    ) -> None:
        super().submit(spec, allowed, 0, groups=Groups(), kueue=Kueue())
        if steps:
            self.world.finish_step()
        self.world.send_code(code, applies=applies)
        self.world.meet()
        if hears:
            self.world.hear()
            self.operate("round")


MATTERS = vars(Supervised).keys() | {
    "pod_fails",
    "pods_are_deleted_by_hand",
    "pod_is_taken_away",
    "node_dies",
    "cluster_notices_lost_nodes",
    "node_comes_back",
    "time_passes",
    "user_suspends_or_resumes",
    "user_cancels",
    "operator_dies",
}
for name in [name for name, one in vars(Histories).items() if hasattr(one, RULE_MARKER) and name not in MATTERS]:
    setattr(Recoded, name, None)


class TestHistories(Histories.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(0.4), stateful_step_count=55)


class TestSupervised(Supervised.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(0.4), stateful_step_count=55)


class TestRecoded(Recoded.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(0.4), stateful_step_count=30)


@pytest.mark.full("more of the same: TestHistories tries a part")
class TestMoreHistories(Histories.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(3), stateful_step_count=60)


@pytest.mark.full("more of the same: TestSupervised tries a part")
class TestMoreSupervised(Supervised.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(3), stateful_step_count=60)


@pytest.mark.full("more of the same: TestRecoded tries a part")
class TestMoreRecoded(Recoded.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(3), stateful_step_count=60)


pytestmark = pytest.mark.timeout(3600)
