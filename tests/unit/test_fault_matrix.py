"""docs/reference/fault-matrix.md tells of every plan that there is."""

from tests.faults.ever_failed import EVER_FAILED, MET_A_BOUND
from tests.faults.page import PAGE, cells, groups
from tests.faults.plan import Family, Happening
from tests.faults.plans import DIFFERS, PLANS, chosen

CONTENT = PAGE.read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_family_and_place() -> None:
    wanted = [" | ".join(cells(row, plans)) for row, plans in groups().items()]
    missing = [row for row in wanted if f"| {row} | " not in CONTENT]
    assert not missing, "make faults writes it anew"


def test_the_page_tells_what_was_found() -> None:
    assert all(fault in CONTENT for fault in EVER_FAILED.values()), "make faults writes it anew"


def test_what_ever_failed_is_still_tried() -> None:
    assert EVER_FAILED.keys() | MET_A_BOUND | DIFFERS.keys() <= {plan.name for plan in PLANS}


def test_make_test_tries_each_row_each_thing_that_goes_wrong_and_what_ever_failed() -> None:
    tried = [plan for plan in PLANS if plan.name in chosen()]
    assert {plan.family for plan in tried} == set(Family)
    assert {(plan.family, plan.place) for plan in tried} == groups().keys()
    assert {str(fault) for plan in tried for fault in plan.faults} == {
        str(one) for plan in PLANS for one in plan.faults
    }
    assert {plan.happens for plan in tried} == {None, *Happening}
    assert EVER_FAILED.keys() | MET_A_BOUND <= chosen()


def test_make_test_leaves_most_plans_to_make_test_full() -> None:
    assert len(chosen()) < len(PLANS) / 5
