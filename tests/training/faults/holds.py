"""Named points at which a rank waits when the test's plan says so, so that a fault comes exactly there.

The plan is a file, replaced as a whole: which rank is to wait at which point, in any attempt after a given one. A
rank that waits says so in a file of its own, and waits until a file for it says that it may go on or must raise.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = "FAULTS"
"""The variable that names where the files are."""

LOOK_SECONDS = 0.02

GO, RAISE = "go", "raise"


@dataclass(frozen=True, slots=True)
class Held:
    """A rank that waits."""

    point: str
    attempt: int
    rank: int
    pid: int


def plan(directory: Path, holds: Mapping[int, str], after: int) -> None:
    """Has ranks wait, each at its point, in attempts after a given one."""
    _write(directory / "plan", json.dumps({"after": after, "holds": holds}))


def held(directory: Path) -> list[Held]:
    """All ranks that have ever waited."""
    return [Held(**json.loads(path.read_text())) for path in directory.glob("held.*")]


def tell(directory: Path, one: Held, what: str) -> None:
    """Has a rank that waits go on, or raise."""
    _write(directory / f"told.{one.pid}", what)


def reach(point: str) -> None:
    """A rank comes to a point.

    Raises:
        ValueError: It was told to.
    """
    directory, rank, attempt = Path(os.environ[DIRECTORY]), int(os.environ["RANK"]), int(os.environ["DDPJOB_ATTEMPT"])
    planned = json.loads((directory / "plan").read_text())
    if attempt <= planned["after"] or planned["holds"].get(str(rank)) != point:
        return
    one = Held(point, attempt, rank, os.getpid())
    _write(directory / f"held.{one.pid}", json.dumps({name: getattr(one, name) for name in Held.__slots__}))
    told = directory / f"told.{one.pid}"
    while not told.exists():
        time.sleep(LOOK_SECONDS)
    if told.read_text() == RAISE:
        raise ValueError("a mistake of the training code")


def _write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(path)
