"""The types for rules: conditions that a spec must satisfy, and fields that must not change."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ddpjob_operator.api.problems import Path, Problem
from ddpjob_operator.api.spec import DDPJobSpec

MessageValues = Mapping[str, object]
"""The values that replace the placeholders in a rule's message, by placeholder."""

FIXED_FOR_EVER = "can never be changed: which controller manages a job is decided when it is created"
WHILE_SUSPENDED = "may change only while the job is suspended: set spec.suspend first"


@dataclass(frozen=True, slots=True)
class Breach:
    """Where a document breaks a rule, with the values that fill the rule's message."""

    path: Path
    values: MessageValues = field(default_factory=dict)


Check = Callable[[Any], Iterable[Breach]]
"""Yields each breach of a rule in a document, which may have other mistakes too."""


@dataclass(frozen=True)
class Rule:
    """A rule that every DDPJob has to satisfy.

    path     the field that the rule is about; `[]` after a list means each of its items
    refuses  a description of what the rule refuses, for the reference
    message  the error message; the check or, on the API server, `general` fills in placeholders such as `{it}`
    check    the rule in Python
    cel      the rule in CEL; empty if a cluster enforces the rule in another way, which `beside` describes
    at       the part of the document that is `self` in CEL: the smallest part with all fields that the rule compares
    general  values for the message on the API server, which cannot insert the document's values
    beside   a description of how a cluster enforces a rule without CEL, for the reference
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
        """The message on the API server."""
        return _filled(self.message, self.general)

    def problems(self, job: Any) -> Iterator[Problem]:
        """Yields a problem for each place where a document breaks the rule."""
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
        """The field's path, in the form that rules use."""
        return f"{self.at}.{self.field}"

    @property
    def while_suspended(self) -> bool:
        """Whether the field may change while the job is suspended."""
        return self.said == WHILE_SUSPENDED

    def cel(self, path: str) -> str:
        """Returns the CEL expression that checks a change of the field at `path`."""
        new, old = f"self.{path}", f"oldSelf.{path}"
        same = f"{new} == {old}"
        if self.field in _OPTIONAL:
            same = f"(has({new}) ? has({old}) && {same} : !has({old}))"
        suspend = f"{path.removesuffix(self.field)}suspend"
        return f"{same} || oldSelf.{suspend} || self.{suspend}" if self.while_suspended else same

    def broken(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Whether the change from `old` to `new` breaks the rule. Both are specs with defaults, as from `to_dict`."""
        return new.get(self.field) != old.get(self.field) and not (
            self.while_suspended and (new["suspend"] or old["suspend"])
        )


@dataclass(frozen=True)
class Together:
    """A field of `spec` that has to change, too, if another part of the spec changes.

    field  the field, which is optional
    part   the other part, as a CEL expression with `{}` in place of the spec
    said   the message
    """

    field: str
    part: str
    said: str

    at: ClassVar[str] = "spec"

    @property
    def path(self) -> str:
        """The field's path, in the form that rules use."""
        return f"{self.at}.{self.field}"

    @property
    def cel(self) -> str:
        """The CEL expression that checks a change of the spec."""
        new, old = f"self.{self.field}", f"oldSelf.{self.field}"
        unset_or_changed = f"!has({new}) || !has({old}) || {new} != {old}"
        return f"{unset_or_changed} || {self.part.format('self')} == {self.part.format('oldSelf')}"


_OPTIONAL = frozenset(info.alias for info in DDPJobSpec.model_fields.values() if info.default is None)


def _filled(message: str, values: MessageValues) -> str:
    return message.format_map(defaultdict(str, values)).strip()
