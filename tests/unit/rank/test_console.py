"""Words for people."""

import pytest
from ddpjob_rank.console import counted


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [(1, "node", "1 node"), (0, "GPU", "0 GPUs"), (2, "process", "2 processes"), (3, "batch", "3 batches")],
)
def test_a_noun_is_in_the_number_of_its_number(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said
