"""Finds all problems of a DDPJob document in one pass.

The schema checks each field separately. The rules check how fields relate to each other and to the contract.
"""

import difflib
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from datetime import date
from functools import cache
from itertools import islice
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.protocols import Validator

from .former_words import former_words
from .model import without_nulls
from .problems import Path, Problem, dotted
from .rules import RULES
from .schema import defaults_schema, job_schema

MOST_PROBLEMS = 100
"""How many problems of an organisation's defaults are looked for: aliases can repeat one a hundred thousand times."""
COMMANDS = frozenset({"command", "args"})
SWITCHES = {"false": "Disabled", "off": "Disabled", "true": "Enabled", "on": "Enabled"}
"""The enum value that is probably meant if somebody writes a boolean. (YAML reads `off` and `no` as false, and `on`
and `yes` as true.)"""
FORMS = frozenset({"anyOf", "maxItems", "maxLength", "pattern"})
SHELL = re.compile(r"[&|;<>`*]|\$[^(]")
"""Matches characters with a meaning only in a shell. `$(NAME)` is excluded, because Kubernetes replaces it."""

TYPE_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "integer": "a whole number",
    "boolean": "true or false",
}


def problems(document: Any) -> list[Problem]:
    """Returns all problems of a document, sorted by their paths; empty for a valid DDPJob.

    As in the API server, a null counts as an unset field.
    """
    document = without_nulls(document)
    former = [*former_words(document)]
    ruled = [problem for rule in RULES for problem in rule.problems(document)]
    found = {*ruled, *_schema_problems(_validator(), document, told={problem.path for problem in ruled})}
    told = {problem.path for problem in former}
    others = (problem for problem in found if not any(problem.path[: len(path)] == path for path in told))
    return sorted([*former, *others], key=lambda problem: (dotted(problem.path), problem.message))


def problems_with_defaults(document: Any) -> list[Problem]:
    """Returns problems of the organisation's defaults, a list of `DefaultsEntry`, as far as the schema knows."""
    found = {*islice(_schema_problems(_defaults_validator(), document, told=()), MOST_PROBLEMS)}
    return sorted(found, key=lambda problem: (dotted(problem.path), problem.message))


@cache
def _validator() -> Validator:
    return _strict(job_schema())


@cache
def _defaults_validator() -> Validator:
    return _strict(defaults_schema())


def _strict(schema: dict[str, Any]) -> Validator:
    strict: type[Validator] = validators.extend(Draft202012Validator, {"pattern": _matches})  # type: ignore[no-untyped-call]
    return strict(schema)


def _matches(_validator: Validator, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Matches a pattern as JSON Schema does: `$` is the very end, while in Python a newline may follow it."""
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _schema_problems(validator: Validator, document: Any, told: Collection[Path]) -> Iterator[Problem]:
    """Yields the schema's errors, except those in FORMS at the paths in `told`, which a rule already explains."""
    for error in validator.iter_errors(document):
        if not (error.validator in FORMS and tuple(error.absolute_path) in told):
            yield from _explain(error)


def _explain(error: ValidationError) -> Iterator[Problem]:
    """Explains a schema error: what is wrong, and what would be right."""
    path = tuple(error.absolute_path)
    value: Any = error.instance
    limit: Any = error.validator_value
    schema: Any = error.schema
    if error.validator == "additionalProperties":
        for name in sorted(set(value) - set(schema["properties"]), key=str):
            yield Problem((*path, name), _unknown(str(name), list(schema["properties"])))
    elif error.validator == "required":
        for name in (name for name in limit if name not in value):
            yield Problem((*path, name), "is missing" + _meaning(schema["properties"][name]))
    else:
        yield Problem(path, SENTENCES.get(str(error.validator), _as_told)(value, limit, schema, error))


Sentence = Callable[[Any, Any, Any, ValidationError], str]

SENTENCES: dict[str, Sentence] = {
    "minimum": lambda value, limit, *_: f"{value} is too small; it must be at least {limit}",
    "maximum": lambda value, limit, *_: f"{value} is too large; it must be at most {limit}",
    "enum": lambda value, limit, *_: _none_of(value, limit),
    "const": lambda value, limit, *_: f"{value!r} must be {limit}",
    "pattern": lambda value, _limit, schema, _error: f"{value!r} does not have the right form{_meaning(schema)}",
    "type": lambda value, limit, schema, error: (
        _none_of(value, schema["enum"]) if "enum" in schema else _wrong_type(value, limit) + _as_list(error)
    ),
    "anyOf": lambda value, limit, *_: f"{value!r} is not right; it must be {_alternatives(limit)}",
    "uniqueItems": lambda value, *_: f"has {_repeated(value)} twice; values must differ",
    "maxLength": lambda value, limit, *_: f"is too long ({len(value)} characters); at most {limit} are allowed",
    "minItems": lambda _value, _limit, schema, _error: f"is empty{_meaning(schema)}",
    "maxItems": lambda value, limit, *_: f"has {len(value)} entries; at most {limit} are allowed",
    "minProperties": lambda _value, _limit, schema, _error: f"is empty{_meaning(schema)}",
    "maxProperties": lambda value, limit, *_: f"has {', '.join(value)}; at most {limit} of them is allowed",
}


def _as_told(_value: Any, _limit: Any, _schema: Any, error: ValidationError) -> str:
    return error.message


def _unknown(name: str, known: list[str]) -> str:
    return "unknown field" + (_did_you_mean(name, known) or f"; known here: {', '.join(known)}"[:600])


def _none_of(value: Any, known: list[str]) -> str:
    written = str(value).lower() if isinstance(value, bool) else repr(value)
    switched = SWITCHES.get(str(value).lower())
    advice = f"; did you mean {switched}?" if switched in known else _did_you_mean(str(value), known)
    return f"{written} is not one of {', '.join(known)}" + advice


def _did_you_mean(name: str, known: list[str]) -> str:
    """Suggests the known name that differs only in case, underscores or a few letters."""
    folded = {field.lower(): field for field in known}
    close = difflib.get_close_matches(name.lower().replace("_", ""), folded)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def _meaning(schema: Any) -> str:
    text = str(schema.get("description", ""))
    return f": {' '.join(text.split())}" if text else ""


def _wrong_type(value: Any, expected: str) -> str:
    advice = "; put it in quotes" if expected == "string" and not isinstance(value, dict | list) else ""
    return f"{_plain(value)} must be {TYPE_NAMES.get(expected, f'a {expected}')}{advice}"


def _as_list(error: ValidationError) -> str:
    """If a single value should be a list, suggests the list to write."""
    value: Any = error.instance
    schema: Any = error.schema
    items = schema.get("items", {})
    of_mappings = "$ref" in items or items.get("type") == "object"
    if error.validator_value != "array" or of_mappings or not isinstance(value, str | int | float):
        return ""
    of_words = isinstance(value, str) and error.absolute_path[-1] in COMMANDS
    text: str = yaml.safe_dump(_words(str(value)) if of_words else [value], default_flow_style=True, width=math.inf)
    return f": {text.strip()}"


def _words(command: str) -> list[str]:
    """Splits a command into words or, if it needs a shell, returns `sh -c` with the command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ["sh", "-c", command]
    return ["sh", "-c", command] if SHELL.search(command) else words


def _plain(value: Any) -> str:
    """Formats a value as in the YAML. A date appears as it was written, not as Python represents it."""
    return str(value) if isinstance(value, date) else repr(value)


def _alternatives(schemas: list[dict[str, Any]]) -> str:
    return " or ".join(TYPE_NAMES.get(schema["type"], f"a {schema['type']}") for schema in schemas)


def _repeated(values: list[Any]) -> str:
    return next(str(value) for index, value in enumerate(values) if value in values[:index])
