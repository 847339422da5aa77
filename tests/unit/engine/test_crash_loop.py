"""Three failures in a row that get no further: trying again does not help, whatever is left of the budget."""

from .builders import Moment, a_job
from .tables import Table, rows, verdict

start = a_job(nodes=2, restart={"maxRestarts": 9, "backoffSeconds": 0}).running()


def fails(*steps: int | None, moment: Moment = start) -> Moment:
    """Rank 1 has failed after each of these steps; the last time it was not answered yet."""
    *answered, last = steps
    for step in answered:
        moment = moment.reports(1, message="no", step=step).restarted()
    return moment.reports(1, message="no", step=last)


def free_first(moment: Moment) -> Moment:
    return moment.vanishes(0).restarted()


by_rule = a_job(
    nodes=2, restart={"backoffSeconds": 0, "rules": [{"causes": ["Application"], "action": "RestartFree"}]}
).running()
free_by_code = a_job(
    nodes=2,
    restart={"maxRestarts": 9, "backoffSeconds": 0, "rules": [{"exitCodes": [3], "action": "RestartFree"}]},
).running()
twice = fails(7, 7).restarted()


def goes_on(attempt: int, restart: int, gone: str = "") -> tuple[str, str, str]:
    """The gang starts again; `gone` is the pod that does not have to stay any more."""
    plan = f"{gone} -{attempt}.0/5".strip()
    return plan, "Restarting", f"Rank 1 failed: Application: no; restart {restart} of 9 in 0.0 s"


def the_end(attempt: int, step: int) -> tuple[str, str, str]:
    why = f"Rank 1 failed: Application: no; three times in a row training got no further than step {step}"
    return f"-{attempt}.0/5", "Running", f"Stopping 1 pod: {why}"


TABLE: Table = {
    "twice at the same step may be chance": (fails(7, 7), *goes_on(2, 2)),
    "three times is not": (fails(7, 7, 7), *the_end(3, 7)),
    "nor at the very first step": (fails(0, 0, 0), *the_end(3, 0)),
    "or further back each time": (fails(7, 6, 5), *the_end(3, 7)),
    "or back and forth, but no further than at first": (fails(7, 5, 7), *the_end(3, 7)),
    "also if the first seems to be from before the start: kubelets tell whole seconds": (
        fails(7, moment=start.after(-0.9))
        .restarted()
        .after(2)
        .reports(1, message="no", step=7)
        .restarted()
        .reports(1, message="no", step=7),
        *the_end(3, 7),
    ),
    "one step further is progress": (fails(7, 7, 8), *goes_on(3, 3)),
    "and so was one step further in between": (fails(7, 8, 7), *goes_on(3, 3)),
    "after progress three more are needed: two": (fails(7, 7, 8, 8), *goes_on(4, 4, "-1.1/5")),
    "three": (fails(7, 7, 8, 8, 8), *the_end(5, 8)),
    # who does not say how far it got
    "attempts that do not say how far they got tell nothing": (fails(None, None, None), *goes_on(3, 3)),
    "one that does not among others neither": (fails(7, None, 7), *goes_on(3, 3)),
    "nor the last": (fails(7, 7, None), *goes_on(3, 3)),
    "and then begins a new row": (fails(7, 7, None, 7, 7), *goes_on(5, 5, "-2.1/5")),
    "a peer that lost the rank may say it in its place": (
        twice.fails(1, message="ValueError: no").reports(0, cause="PeerLost", step=7),
        "",
        "Failed",
        (
            "Rank 1 failed: Application: ValueError: no (1 more rank failed with it); "
            "three times in a row training got no further than step 7"
        ),
    ),
    # what is not counted
    "a disruption is no failure": (
        twice.vanishes(1),
        "-3.0/5",
        "Restarting",
        "Rank 1 failed: PodDeleted: the pod vanished; restart not counted in 0.0 s",
    ),
    "and one in between breaks the row": (fails(7, moment=free_first(twice)), *goes_on(4, 3, "-1.1/5")),
    "what a rule says is free is none either": (
        fails(7, 7, 7, moment=by_rule),
        "-3.0/5",
        "Restarting",
        "Rank 1 failed: Application: no; restart not counted in 0.0 s",
    ),
    "nor does it count between two others": (
        free_by_code.reports(1, message="no", step=7)
        .restarted()
        .reports(1, code=3, message="no", step=7)
        .restarted()
        .reports(1, message="no", step=7),
        *goes_on(3, 2),
    ),
    # what begins anew
    "suspension begins a new row: the cause may have been mended": (
        fails(7, moment=twice.after(1).suspended().asks(suspend=False).running()),
        *goes_on(4, 3),
    ),
    "in which three are three": (
        fails(7, 7, 7, moment=twice.after(1).suspended().asks(suspend=False).running()),
        *the_end(6, 7),
    ),
    "a resize begins none": (
        fails(7, moment=twice.asks(nodes=3).restarted().asks(nodes=2).restarted()),
        *the_end(5, 7),
    ),
    # with the budget
    "a budget that is used up before is told instead": (
        fails(7, 7, 7, moment=start.asks(restart={"maxRestarts": 2, "backoffSeconds": 0})),
        "-3.0/5",
        "Running",
        "Stopping 1 pod: Rank 1 failed: Application: no; no restart is left of 2 (maxRestarts)",
    ),
}


@rows(TABLE)
def test_crash_loops(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_a_crash_loop_has_its_own_reason_and_is_in_the_history_three_times() -> None:
    failed = fails(7, 7, 7).settled().gone().settled()
    assert failed.status.conditions[-1].reason == "CrashLoop"
    assert [failure.step for failure in failed.status.history] == [7, 7, 7]
    assert failed.status.restarts == 2
