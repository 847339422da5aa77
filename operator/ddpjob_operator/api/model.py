"""The base of every type in the API."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """A frozen value, camelCase in YAML and JSON, snake_case in Python, that accepts no unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    def to_dict(self) -> dict[str, object]:
        """The value as YAML and JSON have it, without what was never set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def without_nulls(value: Any) -> Any:
    """The value without mapping entries that are null."""
    # A template may have a hundred thousand leaves: no call for each of them.
    if isinstance(value, dict):
        return {
            key: without_nulls(item) if isinstance(item, (dict, list)) else item
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [without_nulls(item) if isinstance(item, (dict, list)) else item for item in value]
    return value
