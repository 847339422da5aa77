"""Finds out from git what has changed."""

import subprocess
from collections.abc import Collection
from pathlib import Path

from .table import FAULTS, NEAR, NODES, ROOMS


def changed_files(base: str | None = None) -> set[str]:
    """Files that differ from the commit where this branch left `base`, committed or not.

    Without a base, files that differ from HEAD's parent. Empty if git has no history, as in an archive.

    Raises:
        ValueError: There is no such base.
    """
    if base is not None:
        if not (since := _git("merge-base", "HEAD", base)):
            raise ValueError(f"{base} is nothing that this branch has left: name a branch or a commit, as BASE=main")
        return _differing(since[0])
    return _differing("HEAD^")


def concerned(files: Collection[str]) -> set[str]:
    """The tests that a change of these files concerns, as files and folders."""
    tests: set[str] = set()
    for file in files:
        tests.update(*(told for room, told in ROOMS.items() if file.startswith(room)))
        parts = Path(file).parts
        if parts[0] == "tests" and len(parts) > 2:
            tests.add("/".join(parts[:2]))
    return tests


def near(files: Collection[str]) -> set[str]:
    """Of the concerned tests, those that find most mistakes within minutes; also all changed test files.

    None of them needs real nodes.

    None of them needs real nodes.
    """
    rooms = concerned(files)
    few = {test for room, tests in NEAR.items() if rooms & {room, "tests"} for test in tests}
    changed = {file for file in files if file.startswith("tests/") and Path(file).name.startswith("test_")}
    return few | {file for file in changed if not file.startswith((FAULTS, *NODES)) and Path(file).exists()}


def _differing(since: str) -> set[str]:
    return {*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")}


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
