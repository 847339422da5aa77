"""Ranks that are stopped by a signal or a debugger: this explains a silence long before it counts as a stall."""

from collections.abc import Callable, Mapping

from .beat import Beat, BeatDocument
from .procfs import state_of

SILENT_SECONDS = 3.0
"""Only a rank that has finished no step for this long is checked. Its state is read from a small file in /proc."""

HOW = {"T": "stopped (SIGSTOP)", "t": "stopped by a debugger"}
"""The states, as in proc(5), in which a process does not run until somebody continues it."""


def stopped_state(pid: int, beat: Beat | None) -> str | None:
    """A key of HOW if a silent rank is stopped, else None. `beat` is its last report; None if there is none."""
    if beat is not None and beat.step_age is not None and beat.step_age < SILENT_SECONDS:
        return None
    state = state_of(pid)
    return state if state in HOW else None


def stopped_ranks(beats: Mapping[int, BeatDocument], named: Callable[[int], str]) -> str:
    """Which ranks are stopped, in a sentence; empty if none is. `named` returns the name of a rank."""
    by_state: dict[str, list[int]] = {}
    for rank, beat in sorted(beats.items()):
        if (state := beat.get("stopped")) in HOW:
            by_state.setdefault(state, []).append(rank)
    return "; ".join(
        f"{named(ranks[0])} is {HOW[state]}"
        if not ranks[1:]
        else f"{named(ranks[0])} and {len(ranks) - 1} more are {HOW[state]}"
        for state, ranks in by_state.items()
    )
