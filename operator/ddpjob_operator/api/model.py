"""The base class of all types in the API."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Model(BaseModel):
    """A frozen value without unknown fields, whose field names are camelCase in YAML and snake_case in Python."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Returns the type's JSON Schema, with the fields' docstrings as their descriptions.

        pydantic's own option `use_attribute_docstrings` would read the docstrings whenever the type is imported, but
        hardly any program needs a schema.
        """
        made = handler(schema)
        fields = handler.resolve_ref_schema(made)["properties"]
        for name, docstring in _docstrings(cls):
            fields[cls.model_fields[name].alias]["description"] = docstring
        return made

    def to_dict(self) -> dict[str, object]:
        """Returns the value in the form of YAML and JSON, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _docstrings(model: type[Model]) -> Iterator[tuple[str, str]]:
    """Yields the name and the docstring of each field of a type, if it has one."""
    bases = [base for base in reversed(model.__mro__) if issubclass(base, Model)]  # A field may be inherited.
    definitions = [definition for base in bases for definition in ast.parse(inspect.getsource(base)).body]
    bodies = (definition.body for definition in definitions if isinstance(definition, ast.ClassDef))
    for statements in (pair for body in bodies for pair in pairwise(body)):
        match statements:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                if name in model.model_fields:  # Class variables have docstrings too.
                    yield name, inspect.cleandoc(text)


def without_nulls(value: Any) -> Any:
    """Returns the value without the mapping entries that are null."""
    # A template may have a hundred thousand leaves, and a call for each would be slow.
    if isinstance(value, dict):
        return {
            key: without_nulls(item) if isinstance(item, (dict, list)) else item
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [without_nulls(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def is_empty(value: Any) -> bool:
    """Whether a field with this value can be left out, because the value is False or an empty container."""
    return value is False or (isinstance(value, (list, dict)) and not value)
