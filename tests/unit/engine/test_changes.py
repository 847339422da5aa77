"""What may be changed of a status, and what makes up an incident: the type checker knows all fields there are."""

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from ddpjob_operator.api import Budget, DDPJobStatus, Incarnations, Incident, Steps
from ddpjob_operator.engine.changes import PARTS, BookkeepingChanges, EveryChange, NetworkChanges, changed
from ddpjob_operator.engine.decide import _is_minor
from ddpjob_operator.engine.incidents.facts import Facts
from ddpjob_operator.engine.incidents.judgement import Judgement
from pydantic import BaseModel

from .builders import START


def fields(*models: type[BaseModel]) -> dict[str, set[str]]:
    """What each field of these may hold, but for the parts of a status, whose fields are changed one by one."""
    held = {name: field.annotation for model in models for name, field in model.model_fields.items()}
    return {name: plain(hint) for name, hint in held.items() if name not in PARTS}


@pytest.mark.parametrize(
    ("hinted", "held"),
    [
        ((EveryChange,), (DDPJobStatus, *PARTS.values())),
        ((BookkeepingChanges,), (PARTS["bookkeeping"],)),
        ((NetworkChanges,), (PARTS["network"],)),
        ((Facts, Judgement), (Incident,)),
    ],
)
def test_each_field_can_hold_what_it_holds_in_the_status(
    hinted: tuple[type, ...], held: tuple[type[BaseModel], ...]
) -> None:
    hints = {name: plain(hint) for part in hinted for name, hint in get_type_hints(part).items()}
    assert hints == fields(*held)


def test_no_part_of_a_status_has_a_field_with_the_name_of_another_one() -> None:
    names = [name for model in (DDPJobStatus, *PARTS.values()) for name in model.model_fields]
    assert len(names) == len({*names})


def test_a_change_stands_in_the_part_in_which_its_field_is_and_leaves_the_rest_of_it() -> None:
    status = changed(DDPJobStatus(), supervised=True, master_port=29500, attempt=1)
    status = changed(status, budget=Budget(used=1), status_port=29501)
    assert (status.attempt, status.bookkeeping.supervised, status.bookkeeping.budget.used) == (1, True, 1)
    assert (status.network.master_port, status.network.status_port) == (29500, 29501)
    same = changed(status, supervised=True)
    assert same.bookkeeping is status.bookkeeping, "each decision says so"


@pytest.mark.parametrize(
    ("change", "minor"),
    [
        ({"supervised": True, "steps": Steps(furthest=7), "last_completed_time": START}, True),
        ({"budget": Budget(used=1)}, False),
        ({"incarnations": Incarnations(default=1)}, False),
        ({"suspend_time": START}, False),
    ],
    ids=["what is heard or seen again", "what was paid", "whose pods there are", "since when it stops"],
)
def test_what_the_operator_must_not_forget_is_written_at_once(change: BookkeepingChanges, *, minor: bool) -> None:
    status = DDPJobStatus()
    assert _is_minor(status, changed(status, **change)) is minor


def test_facts_and_judgement_have_no_field_in_common() -> None:
    assert get_type_hints(Facts).keys().isdisjoint(get_type_hints(Judgement))


def plain(hint: Any) -> set[str]:
    """The types that a field may hold, without what only their serialisation and checks need."""
    if hasattr(hint, "__metadata__"):
        return plain(get_args(hint)[0])
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return set().union(*map(plain, get_args(hint)))
    return {str(hint)}
