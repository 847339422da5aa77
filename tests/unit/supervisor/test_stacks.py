"""What is said first of a rank that hangs."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from ddpjob_supervisor.watch import stacks
from ddpjob_supervisor.watch.asking import Answer
from ddpjob_supervisor.watch.blame import Observation
from ddpjob_supervisor.watch.procfs import Process
from ddpjob_supervisor.watch.stacks import _head


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        (Observation(1), "no step reported"),
        (Observation(1, step=0), "step 0 finished"),
        (Observation(1, step=7, activity="evaluate"), "step 7 finished, evaluate"),
    ],
    ids=["no step", "the first step", "an evaluation"],
)
def test_the_last_step_of_a_rank_is_named_beside_its_state(observation: Observation, said: str) -> None:
    assert [*_head(observation, Process(5, "python", "S", "futex"), Answer(asked=True))] == [
        f"rank 1: process 5, state S (sleeps), in futex; {said}"
    ]


def test_what_a_rank_tells_in_another_form_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(*_: object) -> Answer:
        return Answer(asked=True, told=({"sequences": {"0 gloo": "five"}},))

    monkeypatch.setattr(stacks, "ask_rank", told)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        asyncio.run(stacks.collect(os.getpid(), 0, tmp_path / "beats", 1))
