"""What a job that does not run yet says that it waits for, in one sentence."""

from .builders import Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2)
four = a_job(nodes=4).created()
over_quota = two.decided().vanishes(1).refused("QuotaExceeded", "exceeded quota")

NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
APART = "0/4 nodes are available: 4 node(s) didn't match pod affinity rules"
NO_IMAGE = 'Back-off pulling image "trainer:2": manifest unknown'
NO_MAP = 'configmap "settings" not found'
NO_NODE = "rank 0 and 1 more: waiting to be scheduled"
TABLE: Table = {
    # nodes
    "pods of which nobody says anything wait for nodes": (
        four,
        "",
        "Starting",
        "0 of 4 pods running; rank 0 and 3 more: waiting to be scheduled",
    ),
    "those that nobody can place, in the scheduler's words": (
        four.waits(0, "Unschedulable", NO_ROOM).waits(2, "Unschedulable", NO_ROOM),
        "",
        "Starting",
        f"0 of 4 pods running; rank 0 and 1 more: Unschedulable: {NO_ROOM}",
    ),
    "the rank that gives a reason is told before one that does not": (
        four.runs(0).waits(3, "Unschedulable", NO_ROOM),
        "",
        "Starting",
        f"1 of 4 pods running; rank 3: Unschedulable: {NO_ROOM}",
    ),
    "another reason is not more of the same": (
        four.waits(1, "Unschedulable", NO_ROOM).waits(2, "SchedulingGated"),
        "",
        "Starting",
        f"0 of 4 pods running; rank 1: Unschedulable: {NO_ROOM}",
    ),
    "a pod that is held back by gates waits for who set them": (
        two.created().waits(0, "SchedulingGated", "Scheduling is blocked").waits(1, "SchedulingGated"),
        "",
        "Starting",
        "0 of 2 pods running; rank 0: SchedulingGated: Scheduling is blocked",
    ),
    "one for which no node is close enough to the others, and by which label": (
        a_job(nodes=2, scheduling={"topology": {"required": "rack"}}).created().waits(1, "Unschedulable", APART),
        "",
        "Starting",
        (
            f"0 of 2 pods running; rank 1: Unschedulable: {APART} "
            "(check that Kubernetes nodes have the label rack, which spec.scheduling.topology requires)"
        ),
    ),
    # starting
    "a pod with a node starts there": (
        four.runs(0, 1).placed(2, 3),
        "",
        "Starting",
        "2 of 4 pods running; rank 2 and 1 more: starting on Kubernetes node node-2",
    ),
    "which may be a machine": (
        four.runs(0, 1).placed(2, 3).allows(host="machine"),
        "",
        "Starting",
        "2 of 4 pods running; rank 2 and 1 more: starting on machine node-2",
    ),
    "or waits for a volume": (
        two.created().runs(0).placed(1).waits(1, "waiting for its volumes and network"),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: waiting for its volumes and network",
    ),
    "or for the master": (
        two.created().runs(0).placed(1).waits(1, "waiting for the master's port"),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: waiting for the master's port",
    ),
    "a rank that is done already counts as one that has come up": (
        two.created().succeeds(0).placed(1),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: starting on Kubernetes node node-1",
    ),
    # images
    "an image that is not there is no use waiting for": (
        two.created().runs(0).placed(1).waits(1, "ImagePullBackOff", NO_IMAGE),
        "-1.0/5 -1.1/5",
        "Starting",
        f"Stopping 2 pods: Rank 1 failed: ImageError: ImagePullBackOff: {NO_IMAGE}",
    ),
    "and the job has failed, and says which": (
        two.created().runs(0).placed(1).waits(1, "ImagePullBackOff", NO_IMAGE).settled().gone(),
        "",
        "Failed",
        f"Rank 1 failed: ImageError: ImagePullBackOff: {NO_IMAGE}",
    ),
    "nor is a name that is none": (
        two.created().placed(0, 1).waits(0, "InvalidImageName", 'invalid reference format: "A:B:C"'),
        "-1.0/5 -1.1/5",
        "Starting",
        'Stopping 2 pods: Rank 0 failed: ImageError: InvalidImageName: invalid reference format: "A:B:C"',
    ),
    "nor one that must not be pulled": (
        two.created().placed(0, 1).waits(0, "ErrImageNeverPull", "not present with pull policy of Never"),
        "-1.0/5 -1.1/5",
        "Starting",
        ("Stopping 2 pods: Rank 0 failed: ImageError: ErrImageNeverPull: not present with pull policy of Never"),
    ),
    "a registry that does not answer is waited for": (
        two.created().placed(0, 1).waits(0, "ImagePullBackOff", "dial tcp: i/o timeout").after(600),
        "",
        "Starting",
        "0 of 2 pods running; rank 0: ImagePullBackOff: dial tcp: i/o timeout",
    ),
    "and so is a pull that failed for the first time": (
        two.created().placed(0, 1).waits(0, "ErrImagePull", NO_IMAGE).after(600),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0: ErrImagePull: {NO_IMAGE}",
    ),
    # what a container needs
    "a ConfigMap may be made after the job": (
        two.created().placed(0, 1).waits(0, "CreateContainerConfigError", NO_MAP).after(59),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0: CreateContainerConfigError: {NO_MAP}",
    ),
    "but not much later": (
        two.created().placed(0, 1).waits(0, "CreateContainerConfigError", NO_MAP).after(60),
        "-1.0/5 -1.1/5",
        "Starting",
        f"Stopping 2 pods: Rank 0 failed: StartError: CreateContainerConfigError: {NO_MAP}",
    ),
    "its time begins with the pod's node": (
        two.created().after(600).placed(0, 1).waits(0, "CreateContainerConfigError", NO_MAP).after(59),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0: CreateContainerConfigError: {NO_MAP}",
    ),
    "a container that its runtime cannot make has the same time": (
        two.created().placed(0, 1).waits(0, "CreateContainerError", "no such device").after(60),
        "-1.0/5 -1.1/5",
        "Starting",
        "Stopping 2 pods: Rank 0 failed: StartError: CreateContainerError: no such device",
    ),
    "a rank that has failed otherwise is told before one that cannot start": (
        two.created()
        .placed(0, 1)
        .waits(0, "CreateContainerError", "no such device")
        .after(60)
        .fails(1, code=137, reason="OOMKilled"),
        "-1.0/5",
        "Restarting",
        ("Rank 1 failed: OutOfMemory: killed by SIGKILL (1 more rank failed with it); restart 1 of 6 in 0.9 s"),
    ),
    # what the cluster refuses
    "what is refused is told in the cluster's words": (
        over_quota,
        "",
        "Pending",
        "exceeded quota",
    ),
    "and tried again when it is time": (
        over_quota.after(5),
        "+1.1",
        "Pending",
        "exceeded quota",
    ),
    "and forgotten when it is accepted": (
        over_quota.after(5).decided().accepted(),
        "",
        "Starting",
        f"0 of 2 pods running; {NO_NODE}",
    ),
    "an incident goes before what is refused": (
        over_quota.fails(0),
        "",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.9 s",
    ),
    # a gang that starts again
    "a gang in its backoff says how long it waits, and why": (
        two.running().fails(1, message="ValueError: no").decided().gone(),
        "",
        "Restarting",
        "Rank 1 failed: Application: ValueError: no; restart 1 of 6 in 0.9 s",
    ),
    "one whose pods take their time says how many": (
        a_job(nodes=4, restart={"backoffSeconds": 0}).running().fails(1).decided().gone_but(0, 3),
        "",
        "Restarting",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
}


@rows(TABLE)
def test_waiting(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_the_words_of_a_registry_are_cut_where_a_cause_ends() -> None:
    failed = two.created().placed(0, 1).waits(0, "ImagePullBackOff", "manifest unknown " + "ü" * 600).decided()
    assert failed.status.last_incident is not None
    said = failed.status.last_incident.message
    assert said.startswith("ImagePullBackOff: manifest unknown üü")
    assert len(said.encode()) in {511, 512}


def test_a_scheduler_that_has_much_to_say_is_cut_where_a_message_ends() -> None:
    waiting = two.created().waits(0, "Unschedulable", "0/4096 nodes are available: " + "é" * 3000).decided()
    assert waiting.status.message.startswith("0 of 2 pods running; rank 0: Unschedulable: 0/4096 nodes")
    assert len(waiting.status.message) == 1024


VOLUMES = [
    {"name": "code", "configMap": {"name": "code"}},
    {"name": "key", "secret": {"secretName": "key"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "more", "configMap": {"name": "more", "optional": True}},
    {"name": "all", "projected": {"sources": [{"secret": {"name": "token"}}, {"configMap": {"name": "code"}}]}},
    {"name": "scratch", "emptyDir": {}},
]


def test_a_pod_that_waits_for_its_volumes_names_what_they_need() -> None:
    """Which of them is missing only the kubelet's events tell, minutes later; what is optional is none."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1"}], "volumes": VOLUMES}}
    waiting = a_job(nodes=1, template=template).created().placed(0).waits(0, "waiting for its volumes and network")
    assert waiting.decided().status.message == (
        "0 of 1 pod running; rank 0: waiting for its volumes and network"
        " (check that these exist: ConfigMap code, Secret key, PersistentVolumeClaim data, Secret token)"
    )
