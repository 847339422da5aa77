"""What may be changed of a status, and what makes up an incident: the type checker knows all fields there are."""

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from ddpjob_operator.api import DDPJobStatus, Incident
from ddpjob_operator.engine.changes import EveryChange
from ddpjob_operator.engine.incidents.facts import Facts
from ddpjob_operator.engine.incidents.judgement import Judgement
from pydantic import BaseModel


@pytest.mark.parametrize(("parts", "model"), [((EveryChange,), DDPJobStatus), ((Facts, Judgement), Incident)])
def test_each_field_can_hold_what_it_holds_in_the_status(parts: tuple[type, ...], model: type[BaseModel]) -> None:
    held = {name: field.annotation for name, field in model.model_fields.items()}
    hints = {name: hint for part in parts for name, hint in get_type_hints(part).items()}
    assert {name: plain(hint) for name, hint in hints.items()} == {name: plain(hint) for name, hint in held.items()}


def test_facts_and_judgement_have_no_field_in_common() -> None:
    assert get_type_hints(Facts).keys().isdisjoint(get_type_hints(Judgement))


def plain(hint: Any) -> set[str]:
    """The types that a field may hold, without what only their serialisation and checks need."""
    if hasattr(hint, "__metadata__"):
        return plain(get_args(hint)[0])
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return set().union(*map(plain, get_args(hint)))
    return {str(hint)}
