"""A newer operator has written the status: what this version does not know stays as it was, and it goes on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.api.status import (
    AvoidedNodeName,
    CheckpointSeen,
    Condition,
    Incident,
    NodeIncarnation,
    Straggler,
    _kept,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.newer import TOMORROW
from tests.support.seed import examples

from .builders import Moment, a_job, plan, told

KEYS = {
    "conditions": Condition.KEY,
    "incidents": Incident.KEY,
    "exceptions": NodeIncarnation.KEY,
    "avoidedNodeNames": str(AvoidedNodeName.model_fields[AvoidedNodeName.KEY].alias),
    "stragglers": Straggler.KEY,
}
ONE_AT_A_TIME = {"checkpoint": CheckpointSeen.KEY}
SPEED = {"step": 120, "totalSteps": 400, "percent": 30.0, "etaSeconds": 56, "lastStepTime": "2026-01-01T12:00:00Z"}

two = a_job(nodes=2, restart={"backoffSeconds": 0})
trains = two.running().hears(progress=SPEED, checkpoint={"step": 100}, stragglers=[{"node": 1, "slowdown": 3.0}])
MOMENTS: dict[str, Moment] = {
    "just submitted": two,
    "coming up": two.decided().runs(0),
    "training": trains.settled().after(20).hears(progress=SPEED | {"step": 200}),
    "a failure": trains.settled().fails(1),
    "the second one": two.running().fails(1).restarted().fails(0),
    "a lost node": trains.settled().node_dies(1),
    "a pod replaced alone": trains.settled().deleted_by_hand(1).settled().gone(),
    "blocked": two.decided().vanishes(0).refused("QuotaExceeded", "no room"),
    "suspension": trains.settled().asks(suspend=True),
    "resumption": two.running().suspended().asks(suspend=False),
    "another size": two.running().asks(nodes=3),
    "success": trains.settled().succeeds(0, 1),
    "the end": a_job(restart={"maxRestarts": 0}).running().fails(0).settled().gone(),
}

# What is empty, no version writes.
values = st.recursive(
    st.just(True) | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda some: (
        st.lists(some, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from(["x", "y"]), some, min_size=1, max_size=2)
    ),
    max_leaves=4,
)


def strewn(value: Any, draw: st.DrawFn) -> Any:
    """The value with a field that nobody knows yet in any of its mappings."""
    if isinstance(value, list):
        return [strewn(one, draw) for one in value]
    if not isinstance(value, dict):
        return value
    known = {name: strewn(one, draw) for name, one in value.items()}
    return known | ({"fromTomorrow": draw(values)} if draw(st.booleans()) else {})


@st.composite
def newer(draw: st.DrawFn, status: DDPJobStatus) -> DDPJobStatus:
    """The same status as a newer operator might have written it."""
    document: dict[str, Any] = strewn(status.to_dict(), draw)
    if draw(st.booleans()):
        document.setdefault("conditions", []).append(TOMORROW | {"fromTomorrow": draw(values)})
    read = DDPJobStatus.model_validate(document)
    assert read.to_dict() == document
    return read


def mappings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """All mappings of a status but those in what nobody knows, by their places: items of lists by their keys.

    The last checkpoint, too, is told apart by its key: the next one is another.
    """
    yield path, value
    for name, inner in value.items():
        if name == "fromTomorrow":
            continue
        if isinstance(inner, dict):
            key = (str(inner[ONE_AT_A_TIME[name]]),) if name in ONE_AT_A_TIME else ()
            yield from mappings(inner, (*path, name, *key))
        elif name in KEYS:
            for one in inner:
                yield from mappings(one, (*path, name, str(one[KEYS[name]])))


def forgotten(status: DDPJobStatus) -> DDPJobStatus:
    """A status without all that nobody knows."""

    def known(value: Any) -> Any:
        if isinstance(value, list):
            return [known(one) for one in value if one is not None and not is_tomorrow(one)]
        if not isinstance(value, dict):
            return value
        return {name: known(inner) for name, inner in value.items() if name != "fromTomorrow"}

    return DDPJobStatus.model_validate(known(status.to_dict()))


def is_tomorrow(one: Any) -> bool:
    return isinstance(one, dict) and one.get("type") == "Tomorrow"


@told
def with_status(moment: Moment, status: DDPJobStatus) -> Moment:
    return moment.but(job=moment.snapshot.job.with_status(status))


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@examples(0.3)
@given(data=st.data())
def test_what_this_version_does_not_know_stays_and_changes_nothing(moment: Moment, data: st.DataObject) -> None:
    before = data.draw(newer(moment.status))
    then = with_status(moment, before)
    assert (plan(then), then.decision.events) == (plan(moment), moment.decision.events)
    after = then.said().status
    assert forgotten(after) == moment.said().status
    places = dict(mappings(after.to_dict()))
    for place, mapping in mappings(before.to_dict()):
        if "fromTomorrow" in mapping and place in places:
            assert places[place].get("fromTomorrow") == mapping["fromTomorrow"], place
    assert [one for one in after.conditions if one.type == "Tomorrow"] == [
        one for one in before.conditions if one.type == "Tomorrow"
    ]


again = two.running().fails(1).restarted()
UNKNOWN: dict[str, tuple[Moment, dict[str, Any], str]] = {
    "a state": (two.running(), {"state": "Napping"}, "Running"),
    "a cause": (again, {"cause": "Sunburn"}, "Running"),
    "a cause, before the next failure": (again.fails(0), {"cause": "Sunburn"}, "Restarting"),
    "what was decided": (again.fails(0), {"action": "Ponder"}, "Restarting"),
    "a backend, a policy": (
        two.running(),
        {"backend": "UCC", "policy": "Audit", "podSecurity": "Baseline"},
        "Running",
    ),
}


@pytest.mark.parametrize(("moment", "words", "state"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_word_that_this_version_does_not_know_stays_and_the_job_goes_on(
    moment: Moment, words: dict[str, Any], state: str
) -> None:
    document: dict[str, Any] = moment.status.to_dict()
    for place in (document, document["network"], *document.get("incidents", ()), *document["conditions"]):
        place |= {name: word for name, word in words.items() if name in place}
    then = with_status(moment, DDPJobStatus.model_validate(document))
    assert then.decided().status.state == state
    said = json.dumps(then.decided().status.to_dict())
    assert all(f'"{word}"' in said for name, word in words.items() if name != "state")


def test_what_was_said_of_one_incident_is_not_said_of_the_next() -> None:
    failed = trains.settled().fails(1).settled()
    document = failed.status.to_dict()
    document["incidents"][0]["device"] = "GPU-1"
    told_more = with_status(failed, DDPJobStatus.model_validate(document))
    second = told_more.restarted().fails(0).settled().status.to_dict()
    assert [one.get("device") for one in second["incidents"]] == [None, "GPU-1"]


def test_what_was_said_of_one_checkpoint_is_not_said_of_the_next() -> None:
    document = trains.settled().status.to_dict()
    document["checkpoint"]["shards"] = 8
    then = with_status(trains, DDPJobStatus.model_validate(document))
    again, next_one = (then.hears(checkpoint={"step": step}).settled().status.to_dict() for step in (100, 200))
    assert (again["checkpoint"].get("shards"), next_one["checkpoint"].get("shards")) == (8, None)


def test_a_newer_field_that_both_have_is_as_it_is_now() -> None:
    before, after = (DDPJobStatus.model_validate(said) for said in ({"novel": 1, "old": 1}, {"novel": 2}))
    assert _kept(before, after).model_extra == {"novel": 2, "old": 1}
