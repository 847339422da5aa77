"""The environment of a script's ranks at one line of the script, as far as its text shows it."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .read_at_import import DYNAMO, reader_of

ROOM = 16_000
"""The maximum length of all names and values together, because they are passed as an argument of a process."""

UNKNOWN = object()
"""A value that only the running script knows."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the script, or of a module in the script's folder."""

    file: str
    line: int

    def __str__(self) -> str:
        file = self.file
        with suppress(OSError):  # The working directory no longer exists.
            file = os.path.relpath(file)
        return f"{file}:{self.line}"


@dataclass(slots=True)
class Variables:
    """The variables that a script sets before PyTorch reads them."""

    values: dict[str, str] = field(default_factory=dict)
    """The variables whose values the text shows."""
    unclear: dict[str, Place] = field(default_factory=dict)
    """The variables whose values are known only when the script runs, and where it sets them."""
    imported: Place | None = None
    """The line that imports PyTorch; None if the text does not show it."""
    main_line: int = 0
    """The line of the script itself, outside its functions, during which PyTorch is imported."""


class Environment:
    """Applies a script's changes to its environment, from the first line on."""

    def __init__(self, env: Mapping[str, str], *, others: bool) -> None:
        """`env` is the environment in which the ranks start.

        `others` means that values are also recorded for variables that PyTorch does not read at its import.
        """
        self.variables = Variables()
        self._env, self._others, self._room = env, others, ROOM

    def get(self, name: Any) -> Any:
        """A variable's value at this line; None if it is not set.

        UNKNOWN for variables that may differ between ranks.
        """
        if not isinstance(name, str) or reader_of(name) is None or name in self.variables.unclear:
            return UNKNOWN
        return self.variables.values.get(name, self._env.get(name))

    def has(self, name: Any) -> bool:
        """Whether a variable is set at this line, or may be set."""
        return any(name in known for known in (self.variables.values, self.variables.unclear, self._env))

    def set(self, name: Any, value: Any, place: Place, *, sure: bool) -> None:
        """Sets a variable. `sure` means that the script certainly does so."""
        if not self._counts(name) or value == self.get(name):
            return
        if sure and isinstance(value, str) and self._fits(name, value):
            self.variables.values[name] = value
            self.variables.unclear.pop(name, None)
        elif reader_of(name):
            self.variables.unclear[name] = place

    def remove(self, name: Any, place: Place) -> None:
        """Removes a variable."""
        if self._counts(name) and reader_of(name) and self.get(name) is not None:
            self.variables.unclear[name] = place

    def import_torch(self, place: Place, main_line: int) -> None:
        """Records that PyTorch is imported at this line, unless it has been imported before."""
        if self.variables.imported is None:
            self.variables.imported, self.variables.main_line = place, main_line

    def _fits(self, name: str, value: str) -> bool:
        """Whether an environment can hold the variable, and there is still room for it."""
        try:
            os.fsencode(name + value)
        except UnicodeEncodeError:
            return False
        self._room -= len(name) + len(value)
        return self._room >= 0 and "\0" not in name + value and "=" not in name and name != ""

    def _counts(self, name: Any) -> bool:
        """Whether the module that reads the variable is still to be imported."""
        if not isinstance(name, str):
            return False
        reader = reader_of(name)
        return self._others if reader is None else reader == DYNAMO or self.variables.imported is None
