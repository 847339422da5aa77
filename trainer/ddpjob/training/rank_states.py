"""The ranks' own states, such as those of their random generators, which rank 0 gathers for each save."""

import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from ddpjob_rank.console import listed
from ddpjob_rank.errors import PeerLostError, StorageError
from ddpjob_rank.reporting.agreement import Agreement
from ddpjob_rank.reporting.agreement_leader import Survey
from ddpjob_rank.reporting.agreement_server import NotSentError
from ddpjob_rank.reporting.agreement_warnings import MOST_NAMED, ranks

from ddpjob.checkpoint.encoding import StateDict, from_bytes, to_bytes
from ddpjob.checkpoint.plain_values import plain

PASSED_SECONDS = 10.0
"""How long to wait for the state of a rank that has already made further steps, unless the state is arriving."""

SURVEY_SECONDS = 3.0


class StepsDifferError(PeerLostError):
    """Some ranks have not made the step that is to be saved, or have made it elsewhere in training."""


class RankUnsavableError(StorageError):
    """A rank has a state that cannot be saved."""


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where a rank has taken its own state."""

    position: int
    epoch: int
    ends: bool

    def fits(self, other: "StatePlace") -> bool:
        """Whether another rank's state belongs to a save of rank 0 at this place.

        A rank that has run out of batches can be at the end of its epoch instead. Rank 0 must not be there while
        another rank has batches left: its model would be that of the epoch's end.
        """
        return self.position == other.position or (self.epoch == other.epoch and other.ends)


def own_content(place: StatePlace, own: StateDict) -> bytes:
    """Encodes a rank's own state, to be sent to rank 0."""
    return to_bytes({"place": astuple(place), "own": plain(own)})


def no_content(place: StatePlace, problem: str) -> bytes:
    """Encodes, for rank 0, the problem that this rank's own state cannot be saved."""
    return to_bytes({"place": astuple(place), "unsavable": problem})


def gather(
    agreement: Agreement, size: int, *, name: str, place: StatePlace, step: int, seconds: float
) -> list[StateDict]:
    """On rank 0: waits until all ranks have sent their own states under this name, and returns these by rank.

    Raises:
        StepsDifferError: A rank has not sent its state within `seconds`, or has sent that of another step.
        RankUnsavableError: The state of a rank cannot be saved.
        PeerLostError: A rank has ended.
    """
    contents = _contents(agreement, name, place, step, seconds)
    states: list[dict[str, Any]] = [from_bytes(contents[rank]) for rank in range(size)]
    if unsavable := [rank for rank, state in enumerate(states) if "unsavable" in state]:
        raise RankUnsavableError(
            f"step {step} is not saved: {ranks(unsavable, 'has')} a state that cannot be saved:"
            f" {states[unsavable[0]]['unsavable']}"
        )
    if apart := [rank for rank, state in enumerate(states) if not place.fits(StatePlace(*state["place"]))]:
        raise StepsDifferError(f"step {step} is not saved: {ranks(apart, 'is')} at another step than rank 0")
    return [state["own"] for state in states]


def _contents(agreement: Agreement, name: str, place: StatePlace, step: int, seconds: float) -> dict[int, bytes]:
    until, has_passed = time.monotonic() + seconds, False
    while True:
        try:
            return agreement.gathered(name, 1.0)
        except NotSentError as error:
            if error.final or not threading.main_thread().is_alive():
                raise PeerLostError(f"step {step} is not saved: {error}") from error
            if error.arriving:  # A large state, such as that of PowerSGD, takes as long as the network needs.
                until = max(until, time.monotonic() + PASSED_SECONDS)
                continue
            survey = agreement.survey(SURVEY_SECONDS)
            if not has_passed and any(survey[rank][0] > place.position for rank in error.missing if rank in survey):
                has_passed, until = True, min(until, time.monotonic() + PASSED_SECONDS)
            if time.monotonic() >= until:
                if absent := [rank for rank in error.missing if rank in survey and survey[rank][0] < 0]:
                    raise StepsDifferError(
                        f"step {step} is not saved: {ranks(absent, 'has')} not called {agreement.function} yet, but"
                        f" rank 0 has. Call it on all ranks, or find out where rank {absent[0]} hangs"
                    ) from error
                what = f"step {step} is not saved: {error} for it{_steps(survey, error.missing)}"
                calls = f"{agreement.function} equally often on all ranks"
                cure = f"Call {calls}" if has_passed else f"Find out where it hangs, or call {calls}"
                raise StepsDifferError(f"{what}. {cure}") from error


def _steps(survey: Survey, missing: Sequence[int]) -> str:
    known = [rank for rank in (0, *missing) if rank in survey]
    steps = listed([f"rank {rank} has made {survey[rank][1]} steps" for rank in known], MOST_NAMED)
    return f" ({steps})" if steps else ""
