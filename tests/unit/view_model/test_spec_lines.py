"""What a screen shows of what a job was asked to be."""

import json
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.view_model import SpecLine, spec_lines
from hypothesis import given
from hypothesis import strategies as st

from .jobs import job_with


def chosen(**spec: Any) -> dict[str, str]:
    return {line.path: line.value for line in spec_lines(job_with({}, **spec)) if not line.default}


def test_a_job_with_everything_by_default_has_only_its_image() -> None:
    assert chosen() == {"trainer.image": "any"}
    defaults = {line.path: line.value for line in spec_lines(job_with({})) if line.default}
    assert defaults.items() >= {
        ("nodes", "1"),
        ("backend", "Auto"),
        ("restart.maxRestarts", "6"),
        ("suspend", "false"),
    }


def test_what_was_chosen_is_told_with_its_place() -> None:
    rule = {"exitCodes": {"operator": "In", "values": [3]}, "action": "Fail"}
    assert chosen(
        nodes=2, restart={"maxRestarts": 1, "rules": [rule]}, checkpoint={"path": "/c"}, backend="Gloo"
    ) == {
        "nodes": "2",
        "backend": "Gloo",
        "restart.maxRestarts": "1",
        "restart.rules": json.dumps([rule]),
        "checkpoint.path": "/c",
        "trainer.image": "any",
    }


def test_a_default_that_the_api_server_or_its_author_has_written_is_still_one() -> None:
    assert chosen(nodes=1, restart={"maxRestarts": 6}) == chosen()


def test_of_containers_what_matters_is_told_but_no_value_of_a_variable() -> None:
    trainer = {
        "name": "trainer",
        "image": "any",
        "command": ["python"],
        "args": ["train.py", "--lr", "0.1"],
        "env": [{"name": "TOKEN", "value": "not-to-be-seen"}, {"name": "SEED", "value": "1"}],
        "resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "4", "memory": "8Gi"}},
    }
    fetch = {"name": "fetch", "image": "curl"}
    template = {"spec": {"initContainers": [fetch], "containers": [trainer]}}
    assert chosen(template=template) == {
        "fetch.image": "curl",
        "trainer.image": "any",
        "trainer.command": "python train.py --lr 0.1",
        "trainer.requests": "cpu 4, memory 8Gi",
        "trainer.limits": "nvidia.com/gpu 2",
        "trainer.env": "TOKEN, SEED",
    }


def test_a_long_value_is_cut_off() -> None:
    trainer = {"name": "trainer", "image": "any", "args": ["x" * 5000]}
    assert len(chosen(template={"spec": {"containers": [trainer]}})["trainer.command"]) == 1001


@given(st.text())
def test_any_argument_is_told(word: str) -> None:
    trainer = {"name": "trainer", "image": "any", "args": [word]}
    job = DDPJob.from_dict({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [trainer]}}}})
    assert SpecLine("trainer.command", word, default=False) in spec_lines(job) or len(word) > 1000
