"""The Service by which rank 0 is found: its name is no other's."""

from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine import SERVICE, CreatePod, Manifest

from .builders import Moment, a_job
from .builders import made as created
from .tables import Table, rows, verdict

two = a_job(nodes=2, restart={"backoffSeconds": 0})
NAME = "digits-8cx92"
running = two.running()


TABLE: Table = {
    "one that is there already is not made twice": (
        two.serves(NAME),
        "+1.0 +1.1",
        "Pending",
        "Creating 2 pods",
    ),
    "one that somebody deleted is recreated, and the pods go on": (
        running.serves(),
        "service",
        "Running",
        "2 nodes running",
    ),
    "each attempt has the same one": (
        running.fails(1).decided().gone(),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
}


@rows(TABLE)
def test_what_is_done_about_it(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def made(moment: Moment) -> tuple[set[str], set[str]]:
    """The names of Services that are made, and those by which pods are found and find rank 0."""
    actions = moment.decision.actions
    services = {one["metadata"]["name"] for one in created(moment.decision, SERVICE)}
    pods = [one.build() for one in actions if isinstance(one, CreatePod)]
    return services, {name for pod in pods for name in (pod["spec"]["subdomain"], _master(pod).split(".")[1])}


def _master(pod: Manifest) -> str:
    env = pod["spec"]["containers"][0]["env"]
    return next(one["value"] for one in env if one["name"] == "MASTER_ADDR")


def test_no_name_of_a_job_is_the_name_of_its_service() -> None:
    """Else whoever may make jobs could make Services of any name, such as one that others look up in DNS."""
    for name in ("postgres", "kubernetes", "default"):
        moment = two.called(name=name)
        services, used = made(moment)
        assert services == used == {name_beside(moment.snapshot.job.ref)}
        assert name not in services


def test_a_job_made_anew_under_the_same_name_has_another_one() -> None:
    assert made(two.called(uid="another"))[0] & made(two)[0] == set()
