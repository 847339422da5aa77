"""Jobs in a queue of Kueue: what runs only while it is admitted, and what the queue is told."""

import pytest
from ddpjob_operator.engine import KUEUE_WORKLOAD, CreatePod, Flavor, Manifest, Patch, Tell

from .builders import TEMPLATE, Moment, a_job, made, plan
from .tables import Table, rows, verdict

plain = a_job(nodes=2)
two = plain.queues()
three = a_job(nodes=3).queues()
elastic = a_job(nodes=4, elastic={"minNodes": 2}).queues()
in_place = a_job(nodes=3, restart={"mode": "InPlace"}).queues().decided().admitted()
entered = two.decided()
admitted = entered.admitted()
running = admitted.running()
preempted = running.evicted("Preempted", "a more important one")
stopped = preempted.decided().gone()
FULL = "insufficient unused quota for cpu in flavor default, 2 more needed"
NO_KUEUE = (
    "The label kueue.x-k8s.io/queue-name names a queue, but the cluster does not serve Kueue's Workloads "
    "(kueue.x-k8s.io/v1beta2), or does not permit the operator to create them: install Kueue, or remove the label"
)
NEW = "Waiting in the queue: QueueEntered: the queue has not processed the job yet"
CHANGED = "QueueChanged: the job no longer requests what it was admitted with"
LARGER = {"spec": {"containers": [{**TEMPLATE["spec"]["containers"][0], "resources": {"requests": {"cpu": "4"}}}]}}

TABLE: Table = {
    # before it is admitted
    "a job enters its queue before anything of it is made": (two, "queue", "Queued", NEW),
    "where there is no Kueue it waits, and says so": (two.without_kueue(), "", "Pending", NO_KUEUE),
    "it waits in the queue's words": (
        entered.waits_in_queue("WaitingForQuota", FULL),
        "",
        "Queued",
        f"Waiting in the queue: WaitingForQuota: {FULL}",
    ),
    "no deadline runs meanwhile": (
        a_job(nodes=2, activeDeadlineSeconds=60, startDeadlineSeconds=30).queues().decided().after(3600),
        "",
        "Queued",
        NEW,
    ),
    "nor goes one on that ran while something else was in the way": (
        a_job(nodes=2, activeDeadlineSeconds=60).nameless().decided().queues().decided().after(3600),
        "",
        "Queued",
        NEW,
    ),
    "a queue that refuses it is tried again": (
        two.refused("Forbidden", "no"),
        "",
        "Queued",
        "no",
    ),
    "after a while": (two.refused("Forbidden", "no").after(30), "queue", "Queued", "no"),
    "one that is made larger or smaller while it waits keeps its place": (
        entered.asks(nodes=3),
        "queue=3",
        "Queued",
        NEW,
    ),
    "so does an elastic one that can do with fewer, or no longer can": (
        elastic.decided().asks(elastic={"minNodes": 3}),
        "queue=3..4",
        "Queued",
        NEW,
    ),
    "or with nothing but all that it asks for": (
        elastic.decided().asks(elastic=None),
        "queue=4",
        "Queued",
        NEW,
    ),
    "one that asks for other pods does not": (
        entered.asks(template=LARGER),
        "-queue",
        "Queued",
        f"Waiting in the queue: {CHANGED}",
    ),
    "nor does one that goes to another queue": (
        entered.queues("another"),
        "-queue",
        "Queued",
        f"Waiting in the queue: {CHANGED}",
    ),
    "or gets another priority": (
        entered.queues(priority_class="high"),
        "-queue",
        "Queued",
        f"Waiting in the queue: {CHANGED}",
    ),
    "one that leaves its queue starts": (
        entered.without_queue(),
        "service +1.0 +1.1 -queue",
        "Pending",
        "Creating 2 pods",
    ),
    "one that is suspended leaves it": (
        entered.asks(suspend=True),
        "-queue",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    "one that is cancelled has failed, and its queue knows": (
        entered.asks(cancel=True),
        "queue:Finished",
        "Failed",
        "The job was cancelled (spec.cancel)",
    ),
    # admitted
    "once it is admitted, it starts": (admitted, "service +1.0 +1.1", "Pending", "Creating 2 pods"),
    "an elastic one with as many nodes as there is quota for": (
        elastic.decided().admitted(2),
        "service +1.0 +1.1",
        "Pending",
        "Creating 2 pods",
    ),
    "and it does not look out for more": (
        elastic.decided().admitted(2).settled().runs(0, 1).settled(),
        "",
        "Running",
        "2 nodes running",
    ),
    "the queue is told when all pods run": (
        admitted.created().runs(0, 1),
        "queue:PodsReady",
        "Running",
        "2 nodes running",
    ),
    "a gang that starts again keeps its quota": (
        running.settled().fails(1).ready_again(),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "so does one of which a pod is replaced": (
        in_place.running().hears().settled().node_dies(1).decided().gone(),
        "+2.1",
        "Restarting",
        "Creating 1 of 3 pods",
    ),
    "with a flavor that nobody can read, no pod is made": (
        entered.admitted(2, "h100").knows_flavor("h100", Flavor(problem="ResourceFlavor h100: nobody may read it")),
        "",
        "Pending",
        "ResourceFlavor h100: nobody may read it",
    ),
    "and a gang that runs goes on": (
        entered.admitted(2, "h100")
        .running()
        .settled()
        .knows_flavor("h100", Flavor(problem="ResourceFlavor h100: nobody may read it")),
        "",
        "Running",
        "2 nodes running",
    ),
    "if Kueue goes away, a gang that runs goes on": (
        running.settled().without_kueue(),
        "",
        "Running",
        "2 nodes running",
    ),
    # the quota is taken back
    "one that is preempted saves, each pod within its own time": (
        preempted,
        "-1.0/full -1.1/full",
        "Queued",
        "Waiting for 2 pods to save and stop: Preempted: a more important one",
    ),
    "it keeps the quota until nothing runs any more": (
        preempted.decided(),
        "",
        "Queued",
        "Waiting for 2 pods to save and stop: Preempted: a more important one",
    ),
    "then it gives the quota back": (
        stopped,
        "queue:-quota",
        "Queued",
        "Waiting in the queue: Preempted: a more important one",
    ),
    "what it is refused it does not say again at once": (
        stopped.refused("Forbidden", "no"),
        "",
        "Queued",
        "Waiting in the queue: Preempted: a more important one",
    ),
    "but after a while": (
        stopped.refused("Forbidden", "no").after(30),
        "queue:-quota",
        "Queued",
        "Waiting in the queue: Preempted: a more important one",
    ),
    "and waits": (
        stopped.decided().waits_in_queue("WaitingForQuota", FULL),
        "",
        "Queued",
        f"Waiting in the queue: WaitingForQuota: {FULL}",
    ),
    "admitted again, it starts again": (stopped.decided().admitted(), "+2.0 +2.1", "Pending", "Creating 2 pods"),
    "an eviction in the middle of a restart stops what is left": (
        running.fails(1).decided().evicted("Preempted", "a more important one"),
        "",
        "Queued",
        "Waiting for 1 pod to save and stop: Preempted: a more important one",
    ),
    "and one while it waits to try again gives back at once": (
        running.fails(1).decided().gone().evicted("Preempted", "a more important one"),
        "queue:-quota",
        "Queued",
        "Waiting in the queue: Preempted: a more important one",
    ),
    "an operator that dies before it has said so says it later": (
        stopped.said(),
        "queue:-quota",
        "Queued",
        "Waiting in the queue: Preempted: a more important one",
    ),
    "its place is deleted by hand: it asks for another before it stops": (
        running.settled().dequeued_by_hand(),
        "queue",
        "Running",
        "2 nodes running",
    ),
    "and stops if it is not admitted": (
        running.settled().dequeued_by_hand().decided(),
        "-1.0/full -1.1/full",
        "Queued",
        "Waiting for 2 pods to save and stop: QueueEntered: the queue has not processed the job yet",
    ),
    "or cannot ask": (
        running.settled().dequeued_by_hand().refused("Forbidden", "no"),
        "-1.0/full -1.1/full",
        "Queued",
        "Waiting for 2 pods to save and stop: QueueChanged: the job's Workload was deleted",
    ),
    "a gang that gets a queue while it runs goes on until the queue has spoken": (
        plain.running().settled().queues(),
        "queue",
        "Running",
        "2 nodes running",
    ),
    # another size
    "one that shrinks gives back quota once the others have gone": (
        a_job(nodes=3).queues().decided().admitted().running().settled().asks(nodes=2),
        "-1.0/full -1.1/full -1.2/full",
        "Restarting",
        "Resizing from 3 to 2 nodes",
    ),
    "and not before": (
        three.decided().admitted().running().settled().asks(nodes=2).decided().gone(),
        "+2.0 +2.1 queue=2",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "one that grows saves, stops, and queues anew": (
        running.settled().asks(nodes=3),
        "-1.0/full -1.1/full",
        "Queued",
        f"Waiting for 2 pods to save and stop: {CHANGED}",
    ),
    "with all that it wants": (
        running.settled().asks(nodes=3).decided().gone(),
        "-queue",
        "Queued",
        f"Waiting in the queue: {CHANGED}",
    ),
    "and starts with it": (
        running.settled().asks(nodes=3).decided().gone().decided(rounds=2).admitted(),
        "+2.0 +2.1 +2.2",
        "Pending",
        "Creating 3 pods",
    ),
    "an elastic one that needs more than there was quota for queues anew": (
        elastic.decided().admitted(2).settled().runs(0, 1).settled().asks(elastic={"minNodes": 3}),
        "-1.0/full -1.1/full",
        "Queued",
        f"Waiting for 2 pods to save and stop: {CHANGED}",
    ),
    "so does one that is elastic no more": (
        elastic.decided().admitted(2).settled().runs(0, 1).settled().asks(elastic=None),
        "-1.0/full -1.1/full",
        "Queued",
        f"Waiting for 2 pods to save and stop: {CHANGED}",
    ),
    "and one that wants less than it could do with, which Kueue does not let it say": (
        elastic.decided().admitted(2).settled().runs(0, 1).settled().asks(nodes=1, elastic={"minNodes": 1}),
        "-1.0/full -1.1/full",
        "Queued",
        f"Waiting for 2 pods to save and stop: {CHANGED}",
    ),
    "one that merely can do with fewer goes on, and says so when it waits again": (
        elastic.decided().admitted(2).settled().runs(0, 1).settled().asks(elastic={"minNodes": 1}),
        "",
        "Running",
        "2 nodes running",
    ),
    # the end
    "the queue is told of the end": (
        running.settled().succeeds(0, 1),
        "queue:Finished",
        "Succeeded",
        "2 nodes finished",
    ),
    "once": (running.settled().succeeds(0, 1).decided(), "", "Succeeded", "2 nodes finished"),
    "a suspended job leaves its queue when nothing runs any more": (
        running.settled().asks(suspend=True).decided(),
        "",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    "and not before, so that its quota is not given to others": (
        running.settled().asks(suspend=True).decided().gone(),
        "-queue",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    "resumed, it queues": (
        running.settled().asks(suspend=True).decided().gone().decided().asks(suspend=False),
        "queue",
        "Queued",
        NEW,
    ),
}


@rows(TABLE)
def test_queue(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_it_costs_nothing_of_the_budget() -> None:
    again = stopped.decided().admitted().decided().status
    assert (again.attempt, again.restarts, again.disruptions, again.incidents) == (2, 0, 0, ())


@pytest.mark.parametrize("reason", ["ExceedsMaxQuota", "Misconfigured", "NoMatchingFlavor"])
def test_what_waiting_does_not_help_is_an_obstacle(reason: str) -> None:
    blocked = entered.waits_in_queue(reason, "no").decided().status.condition("Blocked")
    assert blocked is not None
    assert (blocked.status, blocked.reason, blocked.message) == (
        "True",
        reason,
        f"Waiting in the queue: {reason}: no",
    )


def test_a_condition_says_why_it_waits_and_that_it_does_not_any_more() -> None:
    waits = entered.waits_in_queue("WaitingForQuota", FULL).decided().status.condition("Queued")
    starts = admitted.decided().status.condition("Queued")
    assert waits is not None
    assert starts is not None
    assert (waits.status, waits.reason, waits.message) == ("True", "WaitingForQuota", FULL)
    assert (starts.status, starts.reason) == ("False", "Dequeued")


def asked_for(moment: Moment) -> Manifest:
    (workload,) = made(moment.decision, KUEUE_WORKLOAD)
    return workload


def test_of_the_template_the_queue_gets_what_it_reads() -> None:
    pod = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}},
        "spec": {
            "priorityClassName": "high",
            "nodeSelector": {"gpu": "h100"},
            "containers": [
                {"name": "trainer", "image": "t:1", "env": [{"name": "A"}], "resources": {"limits": {"cpu": "1"}}}
            ],
        },
    }
    spec = asked_for(a_job(nodes=4, elastic={"minNodes": 2}, template=pod).queues())["spec"]
    assert spec == {
        "queueName": "training",
        "podSets": [
            {
                "name": "nodes",
                "count": 4,
                "minCount": 2,
                "template": {
                    "spec": {
                        "nodeSelector": {"gpu": "h100"},
                        "priorityClassName": "high",
                        "containers": [{"name": "trainer", "resources": {"limits": {"cpu": "1"}}}],
                    }
                },
                "topologyRequest": {"preferred": "rack", "podIndexLabel": "ddpjob.dev/node"},
            }
        ],
        "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
    }


def test_the_queues_own_priority_class_comes_before_that_of_the_pods() -> None:
    assert asked_for(plain.queues(priority_class="urgent"))["spec"]["priorityClassRef"] == {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "urgent",
    }


def test_pods_go_where_their_flavors_are() -> None:
    flavor = Flavor({"gpu": "h100"}, ({"key": "gpu", "operator": "Exists"},))
    moment = entered.admitted(2, "h100").knows_flavor("h100", flavor)
    pods = [one.build() for one in moment.decision.actions if isinstance(one, CreatePod)]
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"gpu": "h100"}] * 2
    assert all({"key": "gpu", "operator": "Exists"} in pod["spec"]["tolerations"] for pod in pods)
    assert all(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "nodes" for pod in pods)
    assert "nodeSelector" not in moment.snapshot.job.spec.template["spec"], "what was asked for stays as it was"


def test_what_is_asked_about_is_what_pods_are_to_be_made_with() -> None:
    assert plan(entered.admitted(2, "h100")) == "service +1.0 +1.1"
    assert entered.admitted(2, "h100").asked.answered.flavors == {"h100"}
    assert not entered.admitted(2, "h100").running().settled().asked.answered.flavors


def test_who_gives_the_quota_back_says_so_as_kueues_own_controllers_do() -> None:
    (told,) = (one.change for one in stopped.decision.actions if isinstance(one, Patch))
    assert isinstance(told, Tell)
    assert [(kind, value, reason) for kind, value, reason, _ in told.conditions] == [
        ("Requeued", True, "Preempted"),
        ("QuotaReserved", False, "Pending"),
        ("Admitted", False, "NoReservation"),
        ("PodsReady", False, "WaitForStart"),
    ]
