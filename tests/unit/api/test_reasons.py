"""Every word that a job says of itself has a meaning, and something that a person does about it."""

from enum import Enum

import pytest
from ddpjob_operator.api import Cause, ConditionType, RestartAction, State
from ddpjob_operator.api.reasons import ADVICE, PASSES, Reason
from ddpjob_operator.engine.incidents.judgement import BY_RULE_ONLY, DEFAULTS
from ddpjob_operator.engine.owned import OWNED, OwnedKind

from docs.generator.source import meanings


def test_there_is_advice_for_every_reason_and_every_cause() -> None:
    assert set(ADVICE) == {*Reason, *Cause}
    assert [word for word, advice in ADVICE.items() if not (advice[0].isupper() or advice[0] == "`")] == []
    assert [word for word, advice in ADVICE.items() if not advice.endswith(".") and "`" not in advice] == []


@pytest.mark.parametrize("words", [Reason, Cause, ConditionType, State, RestartAction])
def test_every_word_has_a_meaning(words: type[Enum]) -> None:
    told = {value: text for _, value, text in meanings(words)}
    assert set(told) == {word.value for word in words}
    assert all(text.strip() for text in told.values())


def test_of_every_reason_to_be_blocked_it_is_decided_whether_it_passes() -> None:
    reasons = [*Reason]
    assert [*PASSES] == reasons[: reasons.index(Reason.UNBLOCKED)]


@pytest.mark.parametrize("kind", [kind for kind in OWNED if kind.named], ids=lambda kind: kind.plural)
def test_for_every_kind_that_a_job_owns_there_is_a_word_for_a_name_that_is_taken(kind: OwnedKind) -> None:
    word = f"{kind.kind}Taken"
    assert PASSES.get(word) is False, f"api/reasons.py needs {word} as a Reason, with a row in PASSES and in ADVICE"


def test_no_word_is_a_reason_and_a_cause() -> None:
    assert {*map(str, Reason)} & {*map(str, Cause)} == set()


def test_for_every_cause_there_is_something_to_do() -> None:
    assert DEFAULTS.keys() | BY_RULE_ONLY == set(Cause)
