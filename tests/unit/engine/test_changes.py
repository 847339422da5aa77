"""What may be changed of a status and of an incident: the type checker knows all fields that there are."""

from typing import Any, get_args, get_type_hints

import pytest
from ddpjob_operator.api import DDPJobStatus, Failure
from ddpjob_operator.engine.changes import EveryChange, IncidentChanges
from pydantic import BaseModel


@pytest.mark.parametrize(("changes", "model"), [(EveryChange, DDPJobStatus), (IncidentChanges, Failure)])
def test_each_field_can_be_changed_to_what_it_can_hold(changes: type, model: type[BaseModel]) -> None:
    held = {name: field.annotation for name, field in model.model_fields.items()}
    assert {name: plain(hint) for name, hint in get_type_hints(changes).items()} == {
        name: plain(hint) for name, hint in held.items()
    }


def plain(hint: Any) -> Any:
    """A type without what only its serialisation needs."""
    parts = get_args(hint)
    if hasattr(hint, "__metadata__"):
        return plain(parts[0])
    return tuple(sorted(map(str, map(plain, parts)))) if parts else hint
