"""Reads the ranks' stacks at the time when a run hung. The supervisors stored them beside the checkpoints."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

VOLUMES = ("", "volumes/*/", "volumes/*/*/", "volumes/*/*/*/")
FILE = re.compile(r"attempt-(\d+)/rank-(\d+)\.txt$")
MOST = 16
"""The maximum number of stacks that are shown. The stacks of the latest attempts come first."""
STORY_CHARACTERS = 32 << 10


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack of one rank."""

    attempt: int
    rank: int
    story: str


def stacks(directory: Path, checkpoints: Iterable[Path]) -> list[Stack]:
    """Reads the stacks in a directory of a run, of checkpoints or of metrics, those of the latest attempt first."""
    places = [directory / "stalls", *(place / "stalls" for place in checkpoints)]
    places += [place for volume in VOLUMES for place in directory.glob(f"{volume}stalls")]
    if directory.name == "metrics":
        places.append(directory.resolve().parent / "stalls")
    found = {file.resolve(): key for place in places for file, key in _files(place)}
    ordered = sorted(found.items(), key=lambda item: (-item[1][0], item[1][1]))
    return [Stack(*key, _story(file)) for file, key in ordered[:MOST]]


def _files(place: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for file in place.glob("attempt-*/rank-*.txt"):
        if (named := FILE.search(file.as_posix())) and file.is_file():
            yield file, (int(named[1]), int(named[2]))


def _story(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as content:
        return content.read(STORY_CHARACTERS)
