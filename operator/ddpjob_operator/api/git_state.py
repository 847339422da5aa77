"""The git commit that a job was submitted from.

A job keeps it in annotations, which anybody can write, so whoever reads them checks them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .contract import GROUP

COMMIT, BRANCH, DIRTY = (f"{GROUP}/git-{part}" for part in ("commit", "branch", "dirty"))
GIT_ANNOTATIONS = frozenset({COMMIT, BRANCH, DIRTY})

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
BRANCH_NAME = re.compile(r"[^\x00-\x20\x7f-\x9f~^:?*\[\\]{1,255}")
SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class GitState:
    """A checkout of a git repository at some moment."""

    commit: str
    """The commit's full hash."""
    branch: str
    """Empty if no branch was checked out."""
    dirty: bool
    """Whether files that git tracks differed from the commit."""

    @classmethod
    def of(cls, annotations: Mapping[str, object]) -> "GitState | None":
        """The state in a job's annotations; None if they have none that is valid."""
        commit, branch = annotations.get(COMMIT), annotations.get(BRANCH, "")
        if not (isinstance(commit, str) and HASH.fullmatch(commit)):
            return None
        named = isinstance(branch, str) and BRANCH_NAME.fullmatch(branch)
        return cls(commit, str(branch) if named else "", annotations.get(DIRTY) == "true")

    @property
    def annotations(self) -> dict[str, str]:
        """The state as a job's annotations."""
        named = {BRANCH: self.branch} if BRANCH_NAME.fullmatch(self.branch) else {}
        return {COMMIT: self.commit, **named, DIRTY: str(self.dirty).lower()}

    def __str__(self) -> str:
        branch = f" on {self.branch}" if self.branch else ""
        return f"commit {self.commit[:SHOWN_DIGITS]}{branch}{', with uncommitted changes' if self.dirty else ''}"
