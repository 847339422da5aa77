"""The floors of the operator's speed are changed by hand, with a reason that the changelog tells."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.operator import report
from bench.operator.contestants import DDPJOB
from bench.operator.report import Floor

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
WHY = "It made 0.5 at best, and may not make less than 0.4: so it is."
GOOD = Floor(best=0.5, floor=0.4, since="2026-11-28", reason=WHY)


def refused(floors: Mapping[str, Floor], changelog: str) -> list[str]:
    """What of each floor nobody has given a reason for."""
    told = " ".join(changelog.split())
    wrong = {
        "is above the best that was ever measured": lambda one: one.floor > one.best,
        "has another reason than its numbers": lambda one: (
            not all(
                f" {number} " in one.reason.replace(":", " ").replace(",", " ") for number in (one.best, one.floor)
            )
        ),
        "is not in the changelog with its reason": lambda one: not one.reason or one.reason not in told,
    }
    return [f"{name}: {what}" for name, one in floors.items() for what, is_so in wrong.items() if is_so(one)]


def test_each_floor_has_a_reason_that_the_changelog_tells() -> None:
    assert refused(report.floors(), CHANGELOG) == []


@pytest.mark.parametrize(
    ("floor", "why"),
    [
        (GOOD._replace(floor=0.3), "has another reason than its numbers"),
        (GOOD._replace(best=0.45), "has another reason than its numbers"),
        (GOOD._replace(floor=0.3, reason=WHY.replace("0.4", "0.3")), "is not in the changelog with its reason"),
        (GOOD._replace(reason=""), "is not in the changelog with its reason"),
        (GOOD._replace(floor=0.6), "is above the best that was ever measured"),
    ],
)
def test_one_that_is_lowered_without_a_reason_is_refused(floor: Floor, why: str) -> None:
    changelog = "- Words.\n- " + WHY.replace("may not", "may\n  not")
    assert refused({"x": GOOD}, changelog) == []
    assert f"x: {why}" in refused({"x": floor}, changelog)


def test_a_share_is_judged_by_its_floor_whatever_was_measured_before() -> None:
    floors = report.floors()
    just = {name: one.floor for name, one in floors.items()}
    below = {name: one.floor - 0.001 for name, one in floors.items()}
    for figures, met in ((just, True), (below, False)):
        rows = report.targets({DDPJOB.title: {"shares": [figures]}})
        assert [row.met for row in rows] == [met] * len(floors)
        assert all(f"at best {one.best}" in row.target for row, one in zip(rows, floors.values(), strict=True))
