"""What the largest legal jobs ask of the engine: a decision names what to make, and builds nothing of it."""

import copy
import json
import pickle

import pytest
from ddpjob_operator.engine import CreatePod, decide

from .builders import Moment, a_job

NODES = 100
VARIABLES = [{"name": f"V{number}", "value": "x" * 100} for number in range(256)]
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1", "env": VARIABLES}]}}
large = a_job(nodes=NODES, template=TEMPLATE)
blocked = large.said().refused("QuotaExceeded", "exceeded quota").said()


def test_a_decision_holds_the_template_once_however_many_pods_it_makes() -> None:
    """One for each of 1,000 pods was 400 MiB."""
    decision = large.decision
    assert sum(isinstance(action, CreatePod) for action in decision.actions) == NODES
    assert len(pickle.dumps(decision)) < 2 * len(json.dumps(TEMPLATE))


@pytest.mark.parametrize("moment", [large, blocked], ids=["it starts", "it is blocked"])
def test_to_decide_about_a_job_copies_no_template(moment: Moment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator has one thread: in the seconds of 1,000 copies it renews nothing, and loses the lead."""

    def refuse(_: object) -> None:
        raise AssertionError("a copy was made")

    monkeypatch.setattr(copy, "deepcopy", refuse)
    assert decide(moment.snapshot).wake_at is not None or moment is large
