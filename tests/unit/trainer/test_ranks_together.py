"""Two ranks of one training, in one process: whose states become one checkpoint."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob.checkpoint.encoding import decode
from ddpjob.checkpoint.sharded import RANKS_SECONDS
from ddpjob.training import rank_states, saver
from ddpjob.training.save_settings import SaveSettings
from ddpjob.training.saver import TrainingSaver, Where
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.reporting.agreement_server import NotSentError, SentContents
from ddpjob_rank.world import World

from tests.support.waiting import wait_for

END = 1 << 40
"""The position at which the first epoch ends."""


class Part:
    """A rank's part in an agreement whose decisions the test makes."""

    decision = Wish.NOTHING
    function = "training.step()"
    steps = 0
    apart = False
    """Whether the rank follows its own wishes."""

    def __init__(self, rank: int, sent: SentContents) -> None:
        self._rank, self._sent = rank, sent
        self.followed: list[int] = []
        self._orders = 0
        self.known: dict[int, tuple[int, int]] = {}
        self.gathered = sent.gathered

    def reached(self, _position: int) -> Wish:
        if self.decision:
            self._orders += 1
            self.followed = [] if self.apart else [self._orders]
        return self.decision

    def miss(self) -> None:
        """Misses the decision about an order that the other ranks follow."""
        self._orders += 1

    def wish(self, _wish: Wish) -> None:
        pass

    def survey(self, _seconds: float) -> dict[int, tuple[int, int]]:
        return self.known

    def send(self, name: str, content: bytes, *others: str) -> None:
        self._sent.put(self._rank, [name, *others], content)


class Rank:
    def __init__(
        self,
        rank: int,
        directory: Path,
        sent: SentContents,
        every_steps: int | None,
        **more: Any,
    ) -> None:
        settings = SaveSettings(
            directory=str(directory), every_steps=every_steps, every_seconds=None, keep=3, uid="", attempt=0, **more
        )
        self.own: dict[str, Any] = {}
        self.part: Any = Part(rank, sent)
        self.saver = TrainingSaver(settings, World(rank, rank, 2, 2), self.part, check_finite=lambda _: None)
        self._rank = rank

    def reach(
        self, position: int, step: int, *, ends: bool = False, decision: Wish = Wish.NOTHING, **how: Any
    ) -> None:
        self.part.decision = decision
        where = Where(step, position // END + (not ends))
        own = {"rank": self._rank, "position": position, **self.own}
        self.saver.reached(position, where, lambda: {"x": torch.ones(1)}, lambda: own, ends=ends, **how)


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[Rank, Rank]:
    monkeypatch.setattr(saver, "RANKS_SECONDS", 0.0)
    sent = SentContents(2)
    first, second = (Rank(rank, tmp_path, sent, getattr(request, "param", None)) for rank in range(2))
    return first, second


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_ranks_with_different_numbers_of_batches_do_not_save_by_their_own_steps(
    ranks: tuple[Rank, Rank], tmp_path: Path
) -> None:
    first, second = ranks
    second.reach(1, 1)
    second.reach(END, 1, ends=True)
    second.reach(END + 1, 2)  # Its second step, but of another epoch.
    first.reach(1, 1)
    first.reach(2, 2)
    with pytest.raises(PeerLostError, match="step 2 is not saved: rank 1 has sent nothing"):
        first.saver.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_has_run_out_of_batches_saves_at_the_end_of_its_epoch(
    ranks: tuple[Rank, Rank], tmp_path: Path
) -> None:
    first, second = ranks
    second.reach(END, 1, ends=True, decision=Wish.SAVE)
    first.reach(2, 2, decision=Wish.SAVE)
    first.saver.finish()
    first.reach(END, 2, ends=True)
    first.saver.finish()
    checkpoints = sorted(tmp_path.iterdir())
    states = [decode(checkpoint / "state.pt") for checkpoint in checkpoints]
    assert [[own["position"] for own in state["ranks"]] for state in states] == [[2, END], [END, END]]


def test_after_a_rank_has_missed_a_decision_the_ranks_meet_again_in_the_next_save(
    ranks: tuple[Rank, Rank], tmp_path: Path
) -> None:
    first, second = ranks
    first.reach(1, 1, decision=Wish.SAVE)
    second.part.miss()
    second.reach(1, 1)
    with pytest.raises(PeerLostError, match="step 1 is not saved: rank 1 has sent nothing"):
        first.saver.finish()
    for rank in (second, first):
        rank.reach(2, 2, decision=Wish.SAVE)
    first.saver.finish()
    assert [checkpoint.name for checkpoint in tmp_path.iterdir()] == ["step-00000002"]


@pytest.mark.parametrize("ends", [True, False], ids=["both at the end", "rank 0 within the epoch"])
def test_a_rank_without_a_batch_left_has_its_state_after_the_last_batch_in_a_save_within_the_epoch(
    ranks: tuple[Rank, Rank], tmp_path: Path, *, ends: bool
) -> None:
    first, second = ranks
    second.reach(END, 1, ends=True, decision=Wish.SAVE, within=lambda: {"position": "after the last batch"})
    first.reach(END if ends else 2, 2, ends=ends, decision=Wish.SAVE)
    first.saver.finish()
    (checkpoint,) = tmp_path.iterdir()
    state = decode(checkpoint / "state.pt")["ranks"][1]
    assert state["position"] == (END if ends else "after the last batch")
    assert "random" in state


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_save_that_is_due_at_the_last_batch_of_some_ranks_has_their_states_of_the_epochs_end(
    ranks: tuple[Rank, Rank], tmp_path: Path
) -> None:
    first, second = ranks
    second.reach(2, 2, postpones=lambda: True)
    second.reach(END, 2, ends=True)
    first.reach(2, 2)
    first.saver.finish()
    (checkpoint,) = tmp_path.iterdir()
    assert [own["position"] for own in decode(checkpoint / "state.pt")["ranks"]] == [2, END]


@pytest.mark.parametrize("ranks", [100], indirect=True)
def test_if_rank_0_runs_out_of_batches_first_all_ranks_save_the_end_of_the_epoch(
    ranks: tuple[Rank, Rank], tmp_path: Path
) -> None:
    first, second = ranks
    first.reach(1, 1)
    second.reach(1, 1)
    second.reach(2, 2, decision=Wish.SAVE)
    second.reach(3, 3)
    second.reach(END, 3, ends=True)
    first.reach(END, 1, ends=True, decision=Wish.SAVE)
    first.saver.finish()
    (checkpoint,) = tmp_path.iterdir()
    assert [own["position"] for own in decode(checkpoint / "state.pt")["ranks"]] == [END, END]


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_ranks_that_make_different_numbers_of_steps_agree_from_then_on(
    ranks: tuple[Rank, Rank],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(saver, "RANKS_SECONDS", 60.0)
    monkeypatch.setattr(rank_states, "PASSED_SECONDS", 0.0)
    first, second = ranks
    wishes: list[Wish] = []
    first.part.wish = wishes.append
    first.part.known = {0: (END + 2, 5), 1: (END + 1, 3)}
    second.reach(END, 1, ends=True)
    first.reach(2, 2)
    wait_for("the proof that rank 1 has passed this step", lambda: not first.saver._writer.busy)  # type: ignore[union-attr]
    first.reach(END, 2, ends=True)
    assert capsys.readouterr().err == (
        "warning: step 2 is not saved: rank 1 has sent nothing for it (rank 0 has made 5 steps, rank 1 has made 3"
        " steps). Call training.step() equally often on all ranks. Training goes on, and the ranks agree on when to"
        " save from now on\n"
    )
    first.reach(END + 1, 3)
    first.reach(END + 2, 4)
    assert wishes == [Wish.SAVE, Wish.SAVE], "for the save that was lost, and for the one that is due"
    for rank in ranks:
        rank.reach(END + 3, 5, decision=Wish.SAVE)
    first.saver.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_a_rank_that_has_never_called_the_function_is_named(
    ranks: tuple[Rank, Rank], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = ranks
    first.part.known = {0: (4, 4), 1: (-1, 0)}
    first.reach(2, 2, decision=Wish.SAVE)
    wait_for("the end of the wait", lambda: not first.saver._writer.busy)  # type: ignore[union-attr]
    first.reach(3, 3)
    assert capsys.readouterr().err.startswith(
        "warning: step 2 is not saved: rank 1 has not called training.step() yet, but rank 0 has. Call it on all"
        " ranks, or find out where rank 1 hangs. Training goes on"
    )


def test_a_state_that_is_arriving_is_waited_for_however_long_it_takes(
    ranks: tuple[Rank, Rank], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_states, "PASSED_SECONDS", 0.0)
    first, second = ranks
    gathered, tries = first.part.gathered, iter([True, True])
    first.part.known = {1: (3, 3)}

    def arrive(name: str, _seconds: float) -> dict[int, bytes]:
        if next(tries, False):
            raise NotSentError([1], "sent nothing", arriving=True)
        return gathered(name, 0.0)  # type: ignore[no-any-return]

    first.part.gathered = arrive
    for rank in (second, first):
        rank.reach(2, 2, decision=Wish.SAVE)
    first.saver.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_at_a_stop_a_missing_rank_is_waited_for_as_long_as_its_grace_period_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent, begun = SentContents(2), time.monotonic()
    first, second = (Rank(rank, tmp_path, sent, None, stop_seconds=0.0) for rank in range(2))
    for rank in (second, first):
        rank.reach(1, 1, decision=Wish.SAVE)
    first.saver.finish()
    with pytest.raises(PeerLostError, match="step 2 is not saved: rank 1 has sent nothing"):
        first.reach(2, 2, decision=Wish.STOP)
    assert time.monotonic() - begun < RANKS_SECONDS / 2
    newest = f"the newest checkpoint is that of step 1, {tmp_path}/step-00000001"
    assert f"warning: stopped on request after step 2, which is not saved: {newest}\n" in capsys.readouterr().err


def test_a_rank_whose_state_cannot_be_saved_fails_the_save_at_once_and_says_why(
    ranks: tuple[Rank, Rank], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = ranks
    second.own = {"lock": Path.home}
    for rank in (second, first):
        rank.reach(1, 1, decision=Wish.SAVE)
    first.saver.finish()
    assert list(tmp_path.iterdir()) == []
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" of type")[0] for line in told] == [
        "warning: step 1 is not saved: ['lock'] is",
        "warning: step 1 is not saved: rank 1 has a state that cannot be saved: ['lock'] is",
    ]


def test_ranks_that_stop_each_by_itself_save_no_mixed_state(ranks: tuple[Rank, Rank], tmp_path: Path) -> None:
    first, second = ranks
    first.part.apart = second.part.apart = True
    second.reach(2, 2, decision=Wish.STOP)
    with pytest.raises(PeerLostError, match="step 3 is not saved: rank 1 is at another step"):
        first.reach(3, 3, decision=Wish.STOP)
    assert list(tmp_path.iterdir()) == []
