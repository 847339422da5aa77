"""Reads the organisation's defaults, and merges those that apply to a namespace.

A setting has a field and, if the field is a list or a mapping, a key: `image`, `env[HTTPS_PROXY]`, `labels[team]`. Of
two settings with the same field and key, the later one wins. So merging is the union of two tables, and it does not
matter in which groups entries are merged.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .contract import ANNOTATIONS_DIRECTORY, CONTRACT_VARIABLES, RESERVED_VOLUME_PREFIX, SECRET_DIRECTORY
from .default_settings import IDENTITIES, MOST_SETTINGS, MOUNT_FIELDS, DefaultsEntry, DefaultSettings
from .inheritance import KEY, LABEL_VALUE, MOST_INHERITED, is_reserved
from .model import without_nulls
from .problems import BadInputError, Path, Problem
from .status import NO_DEFAULTS, Defaults
from .yaml_documents import parsed_documents

LONGEST_DEFAULTS = 64 << 10
"""The most characters of the organisation's defaults. Each job keeps what applies to it in its status."""

MOST_SHOWN, LONGEST_SHOWN = 20, 400
"""How many problems an error lists, and how much of each, in characters."""

Setting = tuple[str, str]
"""The field of a setting, as in Python, and its key, which is empty unless the field is a list or a mapping."""


MOST: Mapping[str, int] = {"labels": MOST_INHERITED, "annotations": MOST_INHERITED}
"""The most keys of a field that has another limit than MOST_SETTINGS."""
SAID_OF_ENTRY = frozenset({"name", "namespace_selector"})
"""The fields of an entry that are no settings."""


def read_defaults(text: str, source: str) -> tuple[DefaultsEntry, ...]:
    """Reads the organisation's defaults from YAML: a list of entries. `source` is the text's name in messages.

    Raises:
        BadInputError: the text is not a list of valid entries. The error lists the problems, each with its line.

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
        placed = sorted((document.line(problem.path), str(problem)[:LONGEST_SHOWN]) for problem in found)
        lines = [f"line {line}: {problem}" for line, problem in placed[:MOST_SHOWN]]
        more = len(placed) - len(lines)
        raise BadInputError(f"{source}: {'; '.join([*lines, *[f'and {more} more'] * bool(more)])}")
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
    """Yields what the API server would refuse in each pod. Jobs keep their defaults, so it would be too late then."""
    for field in ("labels", "annotations", "nodeSelector"):
        for key, value in entry.get(field, {}).items():
            yield from (Problem((field, key), why) for why in _wrong_mark(field, key, value))
    checks = {
        "env": _wrong_variable,
        "volumes": _wrong_volume,
        "tolerations": _wrong_toleration,
        "imagePullSecrets": _wrong_secret,
    }
    for field, check in checks.items():
        for index, item in enumerate(entry.get(field, ())):
            yield from (Problem((field, index, *path), why) for path, why in check(item))
    demands = ("namespaceSelector", "matchExpressions")
    for index, demand in enumerate(entry.get(demands[0], {}).get(demands[1], ())):
        yield from (Problem((*demands, index, *path), why) for path, why in _wrong_demand(demand))


Wrong = Iterator[tuple[Path, str]]
"""What is wrong with an item, each with the path inside it."""


def _wrong_variable(variable: dict[str, Any]) -> Wrong:
    name, sources = variable["name"], variable.get("valueFrom")
    if name in CONTRACT_VARIABLES:
        yield ("name",), f"{name} is set by DDPJob itself; remove it"
    elif not re.fullmatch(r"[ -<>-~]+", name):
        yield ("name",), f"{name!r} is not the name of a variable"
    if sources is not None and len(sources) != 1:
        yield ("valueFrom",), "must have exactly one source, such as secretKeyRef"
    if sources is not None and variable.get("value"):
        yield ("value",), "cannot stand beside valueFrom; remove one of them"


def _wrong_volume(volume: dict[str, Any]) -> Wrong:
    name, path = volume["name"], volume["mountPath"]
    sources = sorted(volume.keys() - {"name", *MOUNT_FIELDS})
    if name.startswith(RESERVED_VOLUME_PREFIX):
        yield ("name",), f"{RESERVED_VOLUME_PREFIX} is reserved for DDPJob; choose another name"
    elif not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        yield ("name",), f"{name!r} is not the name of a volume: lower-case letters, digits and dashes, at most 63"
    if not re.match(r"/[^:]*\Z", path):
        yield ("mountPath",), "must be an absolute path without a colon"
    elif path.rstrip("/") in {SECRET_DIRECTORY, ANNOTATIONS_DIRECTORY}:
        yield ("mountPath",), "is where DDPJob mounts a volume of its own; choose another path"
    if len(sources) > 1:
        yield (), f"has {' and '.join(sources)}; a volume has only one of them"


def _wrong_toleration(toleration: dict[str, Any]) -> Wrong:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect", "")
    if key and not KEY.fullmatch(key):
        yield ("key",), f"{key!r} is not the key of a taint, such as example.com/gpu"
    if operator not in {"Equal", "Exists", "Lt", "Gt"}:
        yield ("operator",), f"{operator!r} is not one of Equal, Exists, Lt, Gt"
    elif operator == "Exists" and value:
        yield ("value",), "must be left out: the operator Exists tolerates every value"
    elif operator != "Exists" and not key:
        yield ("key",), "is missing; to tolerate every taint, set operator: Exists"
    if not LABEL_VALUE.fullmatch(value):
        yield ("value",), f"{value!r} is not the value of a taint"
    if effect not in {"", "NoSchedule", "PreferNoSchedule", "NoExecute"}:
        yield ("effect",), f"{effect!r} is not one of NoSchedule, PreferNoSchedule, NoExecute"
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield ("tolerationSeconds",), "needs effect: NoExecute"


def _wrong_secret(secret: dict[str, Any]) -> Wrong:
    if not secret.get("name"):
        yield ("name",), "is missing"


def _wrong_demand(demand: dict[str, Any]) -> Wrong:
    operator, values = demand["operator"], demand.get("values")
    if operator not in OPERATORS:
        yield ("operator",), f"{operator!r} is not one of {', '.join(OPERATORS)}"
    elif operator in {"In", "NotIn"} and not values:
        yield ("values",), f"is missing: {operator} needs some"
    elif operator not in {"In", "NotIn"} and values:
        yield ("values",), "must be left out"


def _wrong_mark(field: str, key: str, value: str) -> Iterator[str]:
    if not KEY.fullmatch(key):
        yield "is not the key of a label or annotation, such as example.com/team"
    elif field != "nodeSelector" and is_reserved(key):
        yield "is reserved: tools recognise a single object by it, not several"
    elif field != "annotations" and not LABEL_VALUE.fullmatch(value):
        yield f"{value!r} is not the value of a label"
