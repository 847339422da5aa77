"""Two ranks of one training, in one process: whose states become one checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob.checkpoint.encoding import decode
from ddpjob.training import saver
from ddpjob.training.save_settings import SaveSettings
from ddpjob.training.saver import TrainingSaver, Where
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.reporting.agreement_server import SentContents
from ddpjob_rank.world import World

END = 1 << 40
"""The position at which the first epoch ends."""


class Part:
    """A rank's part in an agreement whose decisions the test makes."""

    decision = Wish.NOTHING

    def __init__(self, rank: int, sent: SentContents) -> None:
        self._rank, self._sent = rank, sent
        self.gathered = sent.gathered

    def reached(self, _position: int) -> Wish:
        return self.decision

    def wish(self, _wish: Wish) -> None:
        pass

    def send(self, name: str, content: bytes) -> None:
        self._sent.put(self._rank, name, content)


class Rank:
    def __init__(self, rank: int, directory: Path, sent: SentContents, every_steps: int | None) -> None:
        settings = SaveSettings(
            directory=str(directory), every_steps=every_steps, every_seconds=None, keep=3, uid="", attempt=0
        )
        self.part: Any = Part(rank, sent)
        self.saver = TrainingSaver(settings, World(rank, rank, 2, 2), self.part, check_finite=lambda _: None)
        self._rank = rank

    def reach(self, position: int, step: int, *, ends: bool = False, decision: Wish = Wish.NOTHING) -> None:
        self.part.decision = decision
        where = Where(step, position // END + (not ends))
        own = {"rank": self._rank, "position": position}
        self.saver.reached(position, where, lambda: {"x": torch.ones(1)}, lambda: own, ends=ends)


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
    with pytest.raises(PeerLostError, match="rank 1 has sent nothing"):
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


def test_ranks_that_stop_each_by_itself_save_no_mixed_state(ranks: tuple[Rank, Rank], tmp_path: Path) -> None:
    first, second = ranks
    second.reach(2, 2, decision=Wish.STOP)
    with pytest.raises(PeerLostError, match="rank 1 is at another step than rank 0"):
        first.reach(3, 3, decision=Wish.STOP)
    assert list(tmp_path.iterdir()) == []
