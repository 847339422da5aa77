"""Finds the commit, branch and changes of the git checkout that a job is submitted from.

The repository may be somebody else's, and git runs programs that a repository's configuration names: monitors of the
file system, filters, helpers for missing objects. Here it runs none of them.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpjob_operator.api.git_state import GIT_ANNOTATIONS, HASH, GitState

SECONDS = 2.0
"""How long git may take. A job whose commit is unknown is submitted all the same."""
MOST_FILTERS = 100
SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false")
ALONE = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # Older versions of git fetch missing objects all the same.
    "LC_ALL": "C",
}
STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all", "-z")


def git_state(folder: Path) -> GitState | None:
    """The state of the checkout that a folder belongs to; None if it is in none, or if git does not tell in time."""
    try:
        filters = tuple(_without_filters(_git(folder, "config", "--list", "--name-only", "-z").split("\0")))
        entries = _git(folder, *filters, *STATUS).split("\0") if len(filters) <= MOST_FILTERS else []
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError, _NotTurnedOffError):
        return None
    head = dict(entry[2:].partition(" ")[::2] for entry in entries if entry.startswith("# "))
    commit, branch = head.get("branch.oid", ""), head.get("branch.head", "")
    if not HASH.fullmatch(commit):  # There is no commit yet.
        return None
    changed = any(entry and not entry.startswith("# ") for entry in entries)
    return GitState(commit, "" if branch == "(detached)" else branch, changed)


def with_git_state(document: dict[str, Any], state: GitState | None) -> dict[str, Any]:
    """The job with this state in place of its own, unless none is known."""
    if state is None:
        return document
    metadata = document["metadata"]
    others = {key: text for key, text in (metadata.get("annotations") or {}).items() if key not in GIT_ANNOTATIONS}
    return {**document, "metadata": {**metadata, "annotations": {**others, **state.annotations}}}


def _without_filters(names: list[str]) -> Iterator[str]:
    """Options that turn off all filters, by which git would compare the contents of files.

    Raises:
        _NotTurnedOffError: No option can turn one of them off.
    """
    for name in names:
        section, _, key = name.rpartition(".")
        if name.startswith("filter.") and key in {"clean", "smudge", "process", "required"}:
            if "=" in name:  # git takes what follows for the value.
                raise _NotTurnedOffError
            yield from ("-c", f"{section}.{key}={'false' if key == 'required' else ''}")


class _NotTurnedOffError(Exception):
    """git would run a program that the repository names."""


def _git(folder: Path, *words: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *SAFE, *words],
        cwd=folder,
        env=inherited | ALONE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )
    return done.stdout.decode()
