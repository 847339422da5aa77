"""Which failed tests run once more, and what comes of it."""

import pytest

from tests.stages.changes import concerned
from tests.stages.recorder import Failure
from tests.stages.retry import MOST_FLAKY, judge

CALM = "tests/cluster/test_life.py::test_one"


def failures(*tests: str) -> list[Failure]:
    return [Failure(test, "what was said") for test in tests]


def test_what_passes_alone_is_flaky_and_not_red() -> None:
    verdict = judge(failures(CALM), (), passes_alone=lambda _: True)
    assert [failure.test for failure in verdict.flaky] == [CALM]
    assert not verdict.is_red


def test_what_fails_twice_is_red() -> None:
    verdict = judge(failures(CALM), (), passes_alone=lambda _: False)
    assert verdict.is_red
    assert not verdict.flaky


@pytest.mark.parametrize(
    ("test", "changed"),
    [
        ("tests/model/test_gang.py::test_one", ()),
        ("tests/faults/test_faults.py::test_one[plan]", ()),
        ("tests/faults/fields/test_bounds.py::test_one", ()),
        (CALM, ("tests/cluster/test_life.py",)),
    ],
    ids=["of the model", "a fault plan", "a field", "changed by the commit itself"],
)
def test_some_have_to_pass_at_once(test: str, changed: tuple[str, ...]) -> None:
    assert judge(failures(test), changed, passes_alone=lambda _: pytest.fail("it was run again")).is_red


def test_where_more_fail_than_may_be_flaky_none_runs_again() -> None:
    many = failures(*(f"{CALM}[{number}]" for number in range(MOST_FLAKY + 1)))
    assert judge(many, (), passes_alone=lambda _: pytest.fail("it was run again")).is_red


def test_too_many_flaky_ones_are_red_though_each_stage_had_few() -> None:
    few = failures(*(f"{CALM}[{number}]" for number in range(MOST_FLAKY)))
    verdict = judge(few, (), passes_alone=lambda _: True)
    assert not verdict.is_red
    verdict.flaky += failures("tests/local/test_life.py::test_one")
    assert verdict.is_red


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("operator/ddpjob_operator/report/figures.py", {"tests/report", "tests/docs"}),
        ("charts/ddpjob-operator/values.yaml", {"tests/chart", "tests/e2e"}),
        ("tests/slurm/cluster.py", {"tests/slurm"}),
        ("requirements/dev.txt", {"tests"}),
        ("LICENSE", set()),
    ],
)
def test_a_changed_file_concerns_the_tests_of_its_room(file: str, tests: set[str]) -> None:
    assert concerned([file]) == tests
