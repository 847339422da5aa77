"""Which lines of the programs differ from a base, by git, and which faults are put into them."""

import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from .faults import Mutant, of

PACKAGES = ("operator", "trainer")
HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def since(root: Path, base: str = "") -> str:
    """The commit that the change began at: where this branch left a base, or main; on main, the last one a day ago.

    Raises:
        ValueError: There is no such commit.
    """
    if base:
        words, wrong = (
            ("merge-base", "HEAD", base),
            f"{base} is nothing that this branch has left: name a branch or a commit",
        )
    elif _git(root, "branch", "--show-current") == ["main"]:
        words, wrong = (
            ("rev-list", "-1", "--before=1 day ago", "HEAD"),
            "no commit here is a day old: name one, or fetch the whole history",
        )
    else:
        words, wrong = (
            ("merge-base", "HEAD", "main"),
            "there is no main here that this branch has left: name another base",
        )
    found = _git(root, *words)
    if not found:
        raise ValueError(f"{wrong}, as BASE=origin/main")
    return found[0]


def changed(root: Path, base: str) -> dict[str, set[int]]:
    """The lines of each file of the programs that are not as they were, committed or not; counted from 1."""
    lines: dict[str, set[int]] = defaultdict(set)
    shown = ("--unified=0", "--find-renames", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/")
    file = ""
    for line in _git(root, "diff", *shown, base, "--", *PACKAGES):
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines[file].update(range(first, first + count))
    for file in _git(root, "ls-files", "--others", "--exclude-standard", "--", *PACKAGES):
        lines[file].update(range(1, len((root / file).read_bytes().splitlines()) + 1))
    return {file: numbers for file, numbers in sorted(lines.items()) if file.endswith(".py") and numbers}


def room(file: str) -> str:
    """The part of the programs that a file belongs to."""
    parts = Path(file).parts
    return "/".join(parts[: 3 if parts[0] == "operator" else 2])


def drawn(root: Path, lines: Mapping[str, set[int]], seed: int, per_room: int | None) -> list[Mutant]:
    """One fault for each of the lines that has any, or for so many of each room: the same ones for the same seed."""
    chance = random.Random(seed)
    rooms: dict[str, list[list[Mutant]]] = defaultdict(list)
    for file, numbers in lines.items():
        rooms[room(file)] += _by_line(file, (root / file).read_bytes(), numbers)
    return [mutant for places in rooms.values() for mutant in _some(places, chance, per_room)]


def _by_line(file: str, source: bytes, numbers: set[int]) -> list[list[Mutant]]:
    found: dict[int, list[Mutant]] = defaultdict(list)
    for mutant in of(file, source):
        if not numbers.isdisjoint(mutant.lines):
            found[mutant.lines.start].append(mutant)
    return list(found.values())


def _some(places: list[list[Mutant]], chance: random.Random, most: int | None) -> list[Mutant]:
    chance.shuffle(places)
    found = (next((one for one in chance.sample(place, len(place)) if one.is_python), None) for place in places)
    return sorted(islice(filter(None, found), most), key=lambda one: (one.file, one.lines.start))


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
