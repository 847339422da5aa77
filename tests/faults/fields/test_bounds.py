"""The API server's answers to each field's least and greatest value, values beyond them, and removal."""

from typing import Any

import pytest

from .documents import before, changed, value
from .leaves import Leaf, found, leaves, put, wrong
from .server import Server
from .table import FIELDS, Change, When

OURS = [leaf for leaf in leaves() if not leaf.foreign]
of_ours = pytest.mark.parametrize("leaf", OURS, ids=lambda leaf: leaf.path)

NOT_NOW = {
    When.ALWAYS: "",
    When.WHILE_SUSPENDED: "may change only while the job is suspended: set spec.suspend first",
    When.NEVER: "can never be changed: which controller manages a job is decided when it is created",
}
"""The error for a change while the job runs."""


def suspended(job: dict[str, Any]) -> dict[str, Any]:
    return job | {"spec": job["spec"] | {"suspend": True}}


def top(path: str) -> str:
    return path.split(".", maxsplit=1)[0].removesuffix("[]")


@pytest.fixture(scope="module")
def live(server: Server) -> dict[str, dict[str, Any]]:
    """For each field, an existing job that is not suspended, as the API server has it."""
    return {leaf.path: server.create(before(FIELDS[leaf.path], _named(leaf))) for leaf in OURS}


@pytest.fixture(scope="module")
def resting(server: Server) -> dict[str, dict[str, Any]]:
    """For each field, an existing job that is suspended."""
    jobs = {leaf.path: suspended(before(FIELDS[leaf.path], f"{_named(leaf)}-s")) for leaf in OURS}
    return {path: server.create(job) for path, job in jobs.items()}


def _named(leaf: Leaf) -> str:
    return leaf.path.replace(".", "-").replace("[]", "").lower()


@of_ours
@pytest.mark.parametrize("change", Change)
def test_a_new_job_may_have_the_ends_of_a_field_or_nothing_there(server: Server, leaf: Leaf, change: Change) -> None:
    field = FIELDS[leaf.path]
    job = changed(leaf, change, before(field, "new"))
    answer, said = server.try_to_create(job)
    if refused := field.refused.get(change):
        assert refused in said
        return
    assert not said
    kept = found(answer["spec"], leaf.path)
    assert kept == (leaf.schema.get("default") if change is Change.REMOVED else value(leaf, change))


@of_ours
@pytest.mark.parametrize("change", Change)
def test_a_running_job_takes_a_change_or_refuses_it_and_says_why(
    server: Server, live: dict[str, dict[str, Any]], leaf: Leaf, change: Change
) -> None:
    field = FIELDS[leaf.path]
    there = live[leaf.path]
    asked = changed(leaf, change, there)
    _, said = server.try_to_replace(asked)
    expected = field.refused.get(change) or NOT_NOW[field.when]
    if asked == there:
        expected = ""
    assert (expected in said) if expected else not said
    if expected:
        assert f"spec.{top(leaf.path)}" in said or "spec.nodes" in said, "it names the field"


@of_ours
@pytest.mark.parametrize("change", Change)
def test_a_suspended_job_takes_every_change_but_of_whose_it_is(
    server: Server, resting: dict[str, dict[str, Any]], leaf: Leaf, change: Change
) -> None:
    field = FIELDS[leaf.path]
    _, said = server.try_to_replace(changed(leaf, change, resting[leaf.path]))
    expected = field.refused.get(change) or (NOT_NOW[field.when] if field.when is When.NEVER else "")
    assert (expected in said) if expected else not said


@of_ours
def test_a_wrong_value_is_refused_with_its_path_and_what_would_be_right(server: Server, leaf: Leaf) -> None:
    field = FIELDS[leaf.path]
    job = before(field, "new")
    path = f"spec.{leaf.path}".replace("[]", "[0]")
    for bad, words in (*wrong(leaf.schema), *field.wrong):
        _, said = server.try_to_create(job | {"spec": put(job["spec"], leaf.path, bad)})
        assert path in said, (bad, said)
        assert words in said, (bad, said)


def test_a_change_that_changes_nothing_is_none(server: Server, live: dict[str, dict[str, Any]]) -> None:
    for job in live.values():
        stored = server.change(job)  # Until now the job shows the type's default status, which is not stored.
        answer = server.change(stored)
        kept = {name: value for name, value in answer["metadata"].items() if name != "managedFields"}
        assert kept == {name: value for name, value in stored["metadata"].items() if name != "managedFields"}
