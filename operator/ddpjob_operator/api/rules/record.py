"""What a rule is."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ddpjob_operator.api.problems import Path, Problem
from ddpjob_operator.api.spec import DDPJobSpec

MessageValues = Mapping[str, object]
"""By placeholder, the value that replaces it in a rule's message."""

FIXED_FOR_EVER = "can never be changed: which controller manages a job is decided when it is created"
WHILE_SUSPENDED = "may change only while the job is suspended: set spec.suspend first"


@dataclass(frozen=True, slots=True)
class Breach:
    """Where a document breaks a rule, and the words that fill the rule's message."""

    path: Path
    values: MessageValues = field(default_factory=dict)


Check = Callable[[Any], Iterable[Breach]]
"""Checks one rule on a document that may be wrong in other ways too."""


@dataclass(frozen=True)
class Rule:
    """One rule that every DDPJob has to follow.

    path     the field that it is about; `[]` after a list stands for each of its items
    refuses  what breaks it, in words for the reference
    message  what the user is told; the check fills in `{it}` and the like, if it knows more than the API server
    check    the rule in Python
    cel      the rule in CEL; empty if a cluster refuses it in another way, which `beside` names
    at       the part of the document that CEL sees as `self`: the smallest that has everything it compares
    general  words that fill the message on the API server
    """

    path: str
    refuses: str
    message: str
    check: Check
    cel: str = ""
    at: str = ""
    general: MessageValues = field(default_factory=dict)
    beside: str = ""

    @property
    def said(self) -> str:
        """The message as the API server gives it."""
        return _filled(self.message, self.general)

    def problems(self, job: Any) -> Iterator[Problem]:
        """Where a document breaks it."""
        for breach in self.check(job):
            yield Problem(breach.path, _filled(self.message, breach.values))


@dataclass(frozen=True)
class Fixed:
    """A field of `spec` that cannot always be changed.

    said   the message for a change: WHILE_SUSPENDED, or FIXED_FOR_EVER
    local  whether `ddpjob run` follows the rule too
    """

    field: str
    said: str = WHILE_SUSPENDED
    local: bool = True

    at: ClassVar[str] = "spec"

    @property
    def path(self) -> str:
        """The field, in the form that rules use."""
        return f"{self.at}.{self.field}"

    @property
    def while_suspended(self) -> bool:
        """Whether suspension lets it change."""
        return self.said == WHILE_SUSPENDED

    def cel(self, path: str) -> str:
        """What the API server checks with each change, where this path leads to the field."""
        new, old = f"self.{path}", f"oldSelf.{path}"
        same = f"{new} == {old}"
        if self.field in _OPTIONAL:
            same = f"(has({new}) ? has({old}) && {same} : !has({old}))"
        suspend = f"{path.removesuffix(self.field)}suspend"
        return f"{same} || oldSelf.{suspend} || self.{suspend}" if self.while_suspended else same

    def broken(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Whether the change from one spec to another breaks it; both with their defaults, as from `to_dict`."""
        return new.get(self.field) != old.get(self.field) and not (
            self.while_suspended and (new["suspend"] or old["suspend"])
        )


_OPTIONAL = frozenset(one.alias for one in DDPJobSpec.model_fields.values() if one.default is None)


def _filled(message: str, values: MessageValues) -> str:
    return message.format_map(defaultdict(str, values)).strip()
