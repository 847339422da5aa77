"""Masks secrets in what is shown. A value whose name or form looks secret is masked wherever it appears."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.secrecy import NAMES, SECRET_NAME, SHAPED

from .records import Record, Records, Start

IN_A_URL = re.compile(r"(?<=://)[^/\s]+(?=@)")
NAME = rf"(?=[-\w.]*(?:{NAMES})) [-\w.]++"
QUOTED = r"""
    [$a-z]{0,2} (?: \\" (?:(?!\\").)* (?:\\"|$) | \\' (?:(?!\\').)* (?:\\'|$)  # A prefix is Python's or a shell's.
                  | "(?:\\.|[^"\\])*(?:"|$) | '(?:\\.|[^'\\])*(?:'|$) )
"""
# The lookbehind lets a match begin only at the start of a word, because trying every letter takes quadratic time.
IN_A_SCRIPT = re.compile(
    rf"""
    (?<![-\w.])
    (
        (?! \w*(?:Error|Exception|Warning)\b ) {NAME}
        (?:
            (?: \\?["']\]? )? (?: :\s*[\w.]+ )?                       # name: str = "value", x["name"] = "value"
            (?: \s* [:!=]?= \s* (?={QUOTED}) | \s+ [:!=]?= \s+ | = )  # NAME=value, name = value
            | \\?["'] \s* [:,] \s* (?! \\?["']- )                     # "name": "value", "name", "value"
            | : \s+ (?: (?:Bearer|Basic) \s+ )?                       # Name: value
        )
        | (?=\w+- | authorization) {NAME} :                           # Na-me:value; a module:name has no hyphen
        | (?<!\S) (?=-) {NAME} \s+ (?!-)                              # --name value
    )
    (?: {QUOTED} | [^\s"';&|]+ )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
MASK = "•••"
SHORTEST = 6
"""Minimum length of a secret that is masked wherever it appears. Shorter secrets may be common words."""
PLAIN = re.compile(r"[\d.]*|true|false|none|null", re.IGNORECASE)
SETTINGS = frozenset({"options", "environment"})
"""Fields of a record whose values the user has set. Only here are numbers masked, because names of measured values,
such as `tokens_per_second`, look secret too."""


@lru_cache(maxsize=8192)
def without_secrets(text: str) -> str:
    """A text without what looks like a secret by itself, as in the message of an exception.

    Example:
        >>> without_secrets("login failed: token=a1b2c3")
        'login failed: token=•••'
    """
    return Mask().script(text)


class Mask:
    """Masks secrets in texts. A value that has been recognized as a secret is masked in all later texts."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def value(self, name: str, text: str) -> str:
        """The value `text` of a variable or option `name`, masked if the name looks secret."""
        return self._secret(text) if SECRET_NAME.search(name) else self.script(text)

    def words(self, command: Iterable[str]) -> Iterator[str]:
        """Masks secrets in the words of a command line."""
        secret = False
        for word in command:
            name, equals, text = word.partition("=")
            if secret and not word.startswith("-"):
                yield self._secret(word)
            elif equals and not re.search(r"[\s\"':{]", name):
                yield f"{name}={self.value(name, text)}"
            else:
                yield self.script(word)
            secret = word.startswith("-") and not equals and bool(SECRET_NAME.search(word))

    def script(self, text: str) -> str:
        """Masks secrets in a text that may contain whole commands, such as a shell script."""
        for known in sorted(self._known, key=len, reverse=True):
            text = text.replace(known, MASK)
        text = IN_A_URL.sub(lambda found: self._secret(found[0].partition(":")[2] or found[0]), text)
        text = SHAPED.sub(lambda found: self._secret(found[0]), text)
        return IN_A_SCRIPT.sub(lambda found: found[1] + self._secret(found[0][len(found[1]) :]), text)

    def job(self, job: DDPJob) -> DDPJob:
        """A job without the secrets in its containers' commands and variables, its message and its incidents."""
        document: Any = job.to_document()
        for container in document["spec"]["template"]["spec"]["containers"]:
            for part in ("command", "args"):
                if part in container:
                    container[part] = [*self.words(container[part])]
            for one in container.get("env") or ():
                if "value" in one:
                    one["value"] = self.value(one["name"], str(one["value"]))
        masked = DDPJob.from_dict(document)
        status = job.status
        incidents = tuple(one.model_copy(update={"message": self.script(one.message)}) for one in status.incidents)
        changes = {"message": self.script(status.message), "incidents": incidents}
        return masked.model_copy(update={"status": status.model_copy(update=changes)})

    def records(self, records: Records) -> Records:
        """Records without secrets."""
        return Records(
            [Start(self._record(one.began), [self._record(entry) for entry in one.entries]) for one in records.starts]
        )

    def _secret(self, text: str) -> str:
        value = re.sub(r"^[$a-z]{0,2}(?=\\?[\"'])", "", text).strip("\\\"' ,;)}]")
        if len(value) >= SHORTEST and not PLAIN.fullmatch(value) and MASK not in value:
            self._known.add(value)
        return MASK

    def _record(self, record: Record) -> Record:
        return replace(record, values={key: self._field(key, value) for key, value in record.values.items()})

    def _field(self, name: str, value: Any, *, given: bool = False) -> Any:
        """Masks secrets in a field of a record. If the user has set the field (`given`), numbers are masked too."""
        if isinstance(value, Mapping):
            inside = given or name in SETTINGS
            return {self.script(key): self._field(key, inner, given=inside) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._field(name, inner, given=given) for inner in value]
        return self.value(name, str(value)) if isinstance(value, str) or given else value
