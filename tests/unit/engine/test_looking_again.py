"""When to look at a job again although nothing happens: at each moment at which time alone changes the decision."""

from datetime import datetime, timedelta

import pytest

from .builders import START, Moment, a_job

two = a_job(nodes=2)
running = two.running()
broken = running.fails(1).decided()
limited = a_job(nodes=2, activeDeadlineSeconds=60)
elastic = a_job(nodes=3, elastic={"minNodes": 1, "shrinkAfterSeconds": 30})
tiny = elastic.created().placed(0).after(30).ready_again().settled().runs(0).settled()


def in_(seconds: float) -> datetime:
    """So long after the start of all moments."""
    return START + timedelta(seconds=seconds)


WAKES: dict[str, tuple[Moment, datetime | None]] = {
    "a job that runs has nothing to wait for": (running, None),
    "nor has one whose pods wait for nodes": (two.created(), None),
    # deadlines
    "with a deadline: then": (limited.running(), in_(60)),
    "with a start deadline: then": (a_job(startDeadlineSeconds=60).created(), in_(60)),
    "but not once it has run": (a_job(startDeadlineSeconds=60).running(), None),
    "with both: at the one that comes first": (
        a_job(startDeadlineSeconds=60, activeDeadlineSeconds=90).created(),
        in_(60),
    ),
    "in a backoff that the deadline ends: at the deadline": (
        a_job(activeDeadlineSeconds=60, restart={"backoffSeconds": 200}).running().fails(0).decided(),
        in_(60),
    ),
    "past its deadline, while pods end: when they should have": (
        limited.running().after(60).decided(),
        in_(60 + 30 + 10),
    ),
    "suspended: at the user's word": (limited.running().suspended(), None),
    "while pods save for a suspension: at their events": (limited.running().asks(suspend=True).decided(), None),
    # incidents
    "in a backoff: when it is over": (broken.gone(), in_(0.942454)),
    "after the backoff, while pods end: at their events": (broken.after(2), None),
    "while a pod ends on a node that is lost: when it is overdue": (
        running.node_dies(1).decided().gone_but(1).after(2),
        in_(5 + 10),
    ),
    "where a rank fails in the moment in which another one's sandbox is lost: once the backoff is over": (
        running.fails(1, code=137).loses_its_sandbox(0).decided(),
        in_(0.942454),
    ),
    "where some ranks have finished: when the others are to have": (
        a_job(nodes=2, finishTimeoutSeconds=60).running().after(5).succeeds(0).decided(),
        in_(65),
    ),
    "where an image is missing no longer than a container may wait": (
        two.created().placed(0, 1).after(5).waits(0, "CreateContainerConfigError", "no map").decided(),
        in_(60),
    ),
    "where a pull is tried again: at its events, and when that has taken too long": (
        two.created().placed(0, 1).waits(0, "ImagePullBackOff", "i/o timeout").decided(),
        in_(1903.582117),
    ),
    "where an init container fetches: at its events": (
        two.created().placed(0, 1).waits(0, "init container fetch runs", busy=True).decided(),
        None,
    ),
    # supervisors
    "where one is missed: when that has lasted": (
        running.hears().settled().after(5).hears("Gathering", missing=[1]).decided(),
        in_(15),
    ),
    "and when it is given up": (
        running.hears().settled().after(5).hears("Gathering", missing=[1]).decided().after(10).decided(),
        in_(65),
    ),
    "where rank 0's cannot be asked: when that has lasted": (
        running.hears().settled().after(5).hears_nothing("refused"),
        in_(15),
    ),
    "and when training may not go on any more": (
        running.hears().settled().after(5).hears_nothing("refused").after(10),
        in_(35),
    ),
    "where nobody knows whether the gang runs again: then as well": (
        running.hears()
        .settled()
        .vanishes(1)
        .decided(2)
        .runs(1)
        .decided()
        .after(5)
        .hears_nothing("refused")
        .decided(),
        in_(15),
    ),
    "where a pod that replaces another finds no place: when all is given back, counted from when it was made": (
        running.hears().settled().after(5).vanishes(1).decided(2).decided(),
        in_(609.771467),
    ),
    # what is in the way
    "while something is refused: when it is tried again": (
        two.decided().vanishes(1).refused("QuotaExceeded", "no", retry_in=7),
        in_(7),
    ),
    # sizes
    "an elastic gang that lacks places: when it goes on without": (elastic.created().placed(0), in_(30)),
    "one that lacks too many: when it gives them back, a little later than after 100 s": (
        a_job(nodes=3, scheduleTimeoutSeconds=100, elastic={"minNodes": 2, "shrinkAfterSeconds": 30})
        .created()
        .placed(0),
        in_(105.754562),
    ),
    "one that is to give way: when nothing has changed for a while": (
        two.created().after(5).placed(0).waits(1, "Unschedulable").behind(),
        in_(20),
    ),
    "one that gave way: when it has stayed away for long enough, unless it comes first before": (
        two.created().placed(0).waits(1, "Unschedulable").behind().after(15).decided().gone(),
        in_(30),
    ),
    "counted from when another one came first, or found a node": (
        two.created().placed(0).waits(1, "Unschedulable").behind().after(15).decided().gone().after(5).behind(),
        in_(35),
    ),
    "one that has found some of the places that it lacks: when it takes them": (
        tiny.after(5).placed(1).after(5),
        in_(30 + 35),
    ),
    "one that may not look out for now: when it may": (
        tiny.vanishes(1, 2).refused("QuotaExceeded", "no", retry_in=7),
        in_(30 + 7),
    ),
    # after the end
    "finished: never": (limited.running().succeeds(0, 1).decided(), None),
    "also with a pod that was to be kept, and was lost with its node: never": (
        limited.running()
        .after(60)
        .decided()
        .disrupted(1, "DeletionByTaintManager", seconds=5)
        .after(6)
        .fails(0)
        .after(9)
        .settled(),
        None,
    ),
    "also while a pod that was to stay is removed after all: never": (
        a_job(nodes=2, cleanPodPolicy="None", restart={"maxRestarts": 0})
        .running()
        .fails(0)
        .settled()
        .disrupted(1, "DeletionByTaintManager", seconds=5)
        .asks(cleanPodPolicy="All")
        .settled(),
        None,
    ),
    "nor because something was refused that nobody waits for any more": (
        two.queues()
        .decided()
        .admitted()
        .running()
        .settled()
        .succeeds(0, 1)
        .decided()
        .dequeued_by_hand()
        .refused("Forbidden", "no", retry_in=7),
        None,
    ),
    "with a time to stay: after it": (
        a_job(ttlSecondsAfterFinished=60).running().after(5).succeeds(0).decided(),
        in_(65),
    ),
    "the look that ends it knows the next": (
        a_job(ttlSecondsAfterFinished=60).running().after(5).succeeds(0),
        in_(65),
    ),
}


@pytest.mark.parametrize(("moment", "due"), WAKES.values(), ids=WAKES)
def test_when_to_look_again(moment: Moment, due: datetime | None) -> None:
    assert moment.decision.wake_at == due


DUE = {name: moment.settled() for name, (moment, due) in WAKES.items() if due is not None}


@pytest.mark.parametrize("moment", DUE.values(), ids=DUE)
def test_then_there_is_something_to_do_and_not_before(moment: Moment) -> None:
    due = moment.decision.wake_at
    assert due is not None
    assert moment.at(due - timedelta(milliseconds=1)).decision.empty
    assert not moment.at(due).decision.empty
