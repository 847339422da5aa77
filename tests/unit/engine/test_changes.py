"""What may be changed of a status and of an incident: the type checker knows all fields that there are."""

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from ddpjob_operator.api import DDPJobStatus, Incident
from ddpjob_operator.engine.changes import EveryChange, IncidentChanges
from pydantic import BaseModel


@pytest.mark.parametrize(("changes", "model"), [(EveryChange, DDPJobStatus), (IncidentChanges, Incident)])
def test_each_field_can_be_changed_to_what_it_can_hold(changes: type, model: type[BaseModel]) -> None:
    held = {name: field.annotation for name, field in model.model_fields.items()}
    assert {name: plain(hint) for name, hint in get_type_hints(changes).items()} == {
        name: plain(hint) for name, hint in held.items()
    }


def plain(hint: Any) -> set[str]:
    """The types that a field may hold, without what only their serialisation and checks need."""
    if hasattr(hint, "__metadata__"):
        return plain(get_args(hint)[0])
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return set().union(*map(plain, get_args(hint)))
    return {str(hint)}
