"""Whose an object is, by its name and its labels."""

from collections.abc import Callable

import pytest
from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.ownership import (
    JobRef,
    Named,
    beside,
    group,
    in_queue,
    name_beside,
    name_in_queue,
    name_of_group,
    name_of_pod,
    place_of,
    pod,
)

JOB = JobRef("team", "digits", "uid")
OF_ANOTHER_NAME = JOB._replace(name="images")

LABELS = {Label.JOB_UID: "uid", Label.NODE: "1", Label.INCARNATION: "2"}
KINDS: dict[str, tuple[Named, Callable[[JobRef], str]]] = {
    "a pod": (pod, lambda job: name_of_pod(job, 1, 2)),
    "what is beside the pods": (beside, name_beside),
    "a PodGroup or its Workload": (group, lambda job: name_of_group(job, 2)),
    "a Workload of Kueue's": (in_queue, name_in_queue),
}


@pytest.mark.parametrize(("named", "name"), KINDS.values(), ids=KINDS)
def test_under_the_name_that_another_job_gives_nothing_is_a_jobs_own(
    named: Named, name: Callable[[JobRef], str]
) -> None:
    assert [named(JOB, name(job), LABELS) for job in (JOB, OF_ANOTHER_NAME)] == [True, False]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("digits-bcdfg", True),
        ("digits-bcdf", False),
        ("digits-bcdfgh", False),
        ("digits-bcdfa", False),
        ("digits-2-bcdfg", False),
        ("images-bcdfg", False),
        ("-bcdfg", False),
        ("digitsbcdfg", False),
    ],
)
def test_a_group_of_any_attempt_has_the_jobs_name_and_a_suffix(name: str, own: bool) -> None:  # noqa: FBT001  A table.
    assert group(JOB, name, {}) is own


@pytest.mark.parametrize(
    ("node", "incarnation", "place"),
    [
        ("0", "0", (0, 0)),
        ("4095", "2147483648", (4095, 2147483648)),
        ("4096", "0", None),
        ("0", "2147483649", None),
        ("0", "9" * 5000, None),
        ("9" * 5000, "0", None),
        ("-1", "0", None),
        ("0", "1.0", None),
        ("0", "²", None),
        ("", "0", None),
        ("0", None, None),
        (None, "0", None),
    ],
)
def test_a_pods_place_is_one_that_there_can_be(
    node: str | None, incarnation: str | None, place: tuple[int, int] | None
) -> None:
    labels = {Label.NODE: node, Label.INCARNATION: incarnation}
    assert place_of({label: value for label, value in labels.items() if value is not None}) == place
