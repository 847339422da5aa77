"""Reads the organisation's defaults, and merges those that apply to a namespace.

A setting has a field and, if the field is a list or a mapping, a key: `image`, `env[HTTPS_PROXY]`, `labels[team]`. Of
two settings with the same field and key, the later one wins. So merging is the union of two tables, and it does not
matter in which groups entries are merged.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .contract import CONTRACT_VARIABLES, RESERVED_VOLUME_PREFIX
from .default_settings import IDENTITIES, MOST_SETTINGS, DefaultsEntry, DefaultSettings
from .inheritance import KEY, LABEL_VALUE, MOST_INHERITED, is_reserved
from .model import without_nulls
from .problems import BadInputError, Path, Problem
from .status import NO_DEFAULTS, Defaults
from .yaml_documents import parsed_documents

LONGEST_DEFAULTS = 64 << 10
"""The most characters of the organisation's defaults. Each job keeps what applies to it in its status."""

Setting = tuple[str, str]
"""The field of a setting, as in Python, and its key, which is empty unless the field is a list or a mapping."""


MOST: Mapping[str, int] = {"labels": MOST_INHERITED, "annotations": MOST_INHERITED}
"""The most keys of a field that has another limit than MOST_SETTINGS."""
SAID_OF_ENTRY = frozenset({"name", "namespace_selector"})
"""The fields of an entry that are no settings."""


def read_defaults(text: str, source: str) -> tuple[DefaultsEntry, ...]:
    """Reads the organisation's defaults from YAML: a list of entries. `source` is the text's name in messages.

    Raises:
        BadInputError: the text is not a list of valid entries. The error lists every problem with its line.

    Example:
        >>> [entry.name for entry in read_defaults("- {name: gpus, tolerations: [{key: nvidia.com/gpu}]}", "here")]
        ['gpus']
    """
    if len(text) > LONGEST_DEFAULTS:
        raise BadInputError(f"{source} is longer than {LONGEST_DEFAULTS >> 10} KiB")
    documents = parsed_documents(text, source)
    if len(documents) > 1:
        raise BadInputError(f"{source} has {len(documents)} YAML documents; write one list of entries")
    if not documents or (entries := without_nulls(documents[0].value)) == []:
        return ()
    # Most operators never need this module, which takes long to import.
    from .validation import problems_with_defaults  # noqa: PLC0415

    document = documents[0]
    unreadable = [*document.repeated, *_wrong_keys(entries, ())]
    if found := unreadable or problems_with_defaults(entries) or [*_problems(entries)]:
        placed = sorted((document.line(problem.path), str(problem)) for problem in found)
        lines = "; ".join(f"line {line}: {problem}" for line, problem in placed)
        raise BadInputError(f"{source}: {lines}")
    return tuple(DefaultsEntry.model_validate(entry) for entry in entries)


def merged(entries: Iterable[DefaultsEntry], namespace_labels: Mapping[str, str]) -> Defaults:
    """Merges the entries that select a namespace with these labels. Of the same setting, the last one wins.

    Example:
        >>> entries = read_defaults("[{name: all, image: a, labels: {x: '1'}}, {name: late, image: b}]", "here")
        >>> merged(entries, {}).sources
        {'image': 'late', 'labels[x]': 'all'}
    """
    chosen: dict[Setting, tuple[Any, str]] = {}
    for entry in entries:
        if selects(entry.namespace_selector, namespace_labels):
            chosen |= {setting: (value, entry.name) for setting, value in settings_of(entry)}
    if not chosen:
        return NO_DEFAULTS
    fields: dict[str, Any] = {}
    for (field, key), (value, _) in chosen.items():
        if field in IDENTITIES:
            fields[field] = (*fields.get(field, ()), value)
        elif key:
            fields.setdefault(field, {})[key] = value
        else:
            fields[field] = value
    sources = {_written(setting): source for setting, (_, source) in chosen.items()}
    return Defaults(**fields, sources=sources)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector, with `matchLabels` and `matchExpressions`, selects an object with these labels.

    Example:
        >>> selects({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]}, {"team": "red"})
        True
    """
    if not selector:
        return True
    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return equal and all(_meets(labels, demand) for demand in selector.get("matchExpressions", ()))


OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}
"""The operators of `matchExpressions`. As in Kubernetes, `NotIn` also selects objects without the label."""


def _meets(labels: Mapping[str, str], demand: Mapping[str, Any]) -> bool:
    return OPERATORS[demand["operator"]](labels.get(demand["key"]), demand.get("values", ()))


def settings_of(entry: DefaultSettings) -> Iterator[tuple[Setting, Any]]:
    """Yields each setting with its value, in the order of the fields."""
    for field in type(entry).model_fields:
        value = getattr(entry, field)
        if field in SAID_OF_ENTRY or value is None:
            continue
        if field in IDENTITIES:
            yield from (((field, IDENTITIES[field](item)), item) for item in value)
        elif isinstance(value, dict):
            yield from (((field, key), text) for key, text in value.items())
        else:
            yield (field, ""), value


def _written(setting: Setting) -> str:
    field, key = setting
    alias = DefaultsEntry.model_fields[field].alias or field
    return f"{alias}[{key}]" if key else alias


def _wrong_keys(value: Any, path: Path) -> Iterator[Problem]:
    """Yields the keys that are not text, such as numbers, which JSON does not have."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        if isinstance(value, dict) and not isinstance(key, str):
            yield Problem((*path, str(key)), "a key must be text; put it in quotes")
        else:
            yield from _wrong_keys(item, (*path, key))


def _problems(entries: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yields what is wrong with entries in which the schema finds no problem."""
    names: set[str] = set()
    for index, entry in enumerate(entries):
        if entry["name"] in names:
            yield Problem((index, "name"), f"another entry has the name {entry['name']}; names must differ")
        names.add(entry["name"])
        yield from (Problem((index, *problem.path), problem.message) for problem in _problems_of(entry))
    everywhere = [setting for entry in entries for setting, _ in settings_of(DefaultsEntry.model_validate(entry))]
    for field in DefaultsEntry.model_fields:
        count, most = len({key for name, key in everywhere if name == field}), MOST.get(field, MOST_SETTINGS)
        if count > most:
            yield Problem((), f"{_written((field, ''))} has {count} keys in all entries; at most {most} are allowed")


def _problems_of(entry: dict[str, Any]) -> Iterator[Problem]:
    for field in ("labels", "annotations"):
        for key, value in entry.get(field, {}).items():
            yield from (Problem((field, key), why) for why in _wrong_mark(field, key, value))
    for index, variable in enumerate(entry.get("env", ())):
        if variable["name"] in CONTRACT_VARIABLES:
            yield Problem(("env", index, "name"), f"{variable['name']} is set by DDPJob itself; remove it")
    for index, volume in enumerate(entry.get("volumes", ())):
        if volume["name"].startswith(RESERVED_VOLUME_PREFIX):
            message = f"{RESERVED_VOLUME_PREFIX} is reserved for DDPJob; choose another name"
            yield Problem(("volumes", index, "name"), message)
        if not re.match(r"/[^:]*\Z", volume["mountPath"]):
            yield Problem(("volumes", index, "mountPath"), "must be an absolute path without a colon")
    for index, secret in enumerate(entry.get("imagePullSecrets", ())):
        if not secret.get("name"):
            yield Problem(("imagePullSecrets", index, "name"), "is missing")
    for index, demand in enumerate(entry.get("namespaceSelector", {}).get("matchExpressions", ())):
        if demand["operator"] not in OPERATORS:
            message = f"{demand['operator']!r} is not one of {', '.join(OPERATORS)}"
            yield Problem(("namespaceSelector", "matchExpressions", index, "operator"), message)


def _wrong_mark(field: str, key: str, value: str) -> Iterator[str]:
    if not KEY.fullmatch(key):
        yield "is not the key of a label or annotation, such as example.com/team"
    elif is_reserved(key):
        yield "is reserved: tools recognise a single object by it, not several"
    elif field == "labels" and not LABEL_VALUE.fullmatch(value):
        yield f"{value!r} is not the value of a label"
