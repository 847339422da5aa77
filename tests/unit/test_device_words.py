"""Trainer and operator know the same words of a broken GPU."""

from ddpjob_operator.engine.incidents.evidence import BROKEN_DEVICE
from ddpjob_rank.failure.device_words import BROKEN


def test_trainer_and_operator_know_the_same_words_of_a_broken_gpu() -> None:
    assert BROKEN_DEVICE == BROKEN
