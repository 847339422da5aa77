"""The git commit in a job's annotations, which anybody can write."""

from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.git_state import BRANCH, COMMIT, DIRTY, GitState

A = "1a2b3c4d" * 5
OTHER = {"ddpjob.dev/other": "x"}


@pytest.mark.parametrize(
    ("annotations", "state", "words"),
    [
        (
            {COMMIT: A, BRANCH: "main", DIRTY: "false"},
            GitState(A, "main", dirty=False),
            "commit 1a2b3c4d1a2b on main",
        ),
        (
            {COMMIT: A, BRANCH: "feature/Übung", DIRTY: "true"},
            GitState(A, "feature/Übung", dirty=True),
            "commit 1a2b3c4d1a2b on feature/Übung, with uncommitted changes",
        ),
        ({COMMIT: "f" * 64, DIRTY: "false"}, GitState("f" * 64, "", dirty=False), f"commit {'f' * 12}"),
    ],
)
def test_a_state_is_read_as_it_was_written(annotations: dict[str, str], state: GitState, words: str) -> None:
    assert GitState.of(annotations | OTHER) == state
    assert (state.annotations, str(state)) == (annotations, words)


@pytest.mark.parametrize(
    "commit", [None, 7, "", "HEAD", A[:39], A + "0", A.upper(), A + "\n", "$(id)", "a" * 100_000]
)
def test_what_is_no_commit_is_no_state(commit: Any) -> None:
    assert GitState.of({COMMIT: commit, BRANCH: "main", DIRTY: "true"}) is None


@pytest.mark.parametrize("branch", [7, "a b", "a\nb", "\x1b[2J", "a~1", "a" * 256, None])
def test_what_is_no_branch_is_left_out(branch: Any) -> None:
    assert GitState.of({COMMIT: A, BRANCH: branch, DIRTY: "yes"}) == GitState(A, "", dirty=False)


def test_a_job_keeps_it_and_no_other_annotation() -> None:
    known = {COMMIT: A, BRANCH: "main", DIRTY: "true"}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    job = DDPJob.from_dict({"metadata": {"name": "digits", "annotations": known | OTHER}, "spec": spec})
    assert job.metadata.annotations == known
