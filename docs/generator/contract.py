"""Generates sections of docs/reference/contract.md: the names, and an example that the engine builds."""

from datetime import UTC, datetime
from typing import Any

import yaml
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import PACKED_VARIABLES, Env, ExitCode, Label
from ddpjob_operator.engine import SERVICE, Action, Create, CreatePod, Snapshot, by_name, decide

from .markdown import as_yaml, code, table
from .source import meanings

EXAMPLE = """
metadata: {name: digits, namespace: vision, uid: 2f1d7c4e-0d5b-4d55-9a55-6c1c2f0f7c11}
spec:
  nodes: 2
  checkpoint:
    path: /checkpoints
    everySteps: 50
    volume: {persistentVolumeClaim: {claimName: digits}}
  template:
    spec:
      containers:
        - {name: trainer, image: "ddpjob-trainer:0.1.0", command: [ddpjob-train]}
"""


def env() -> str:
    """The variables of the trainer container, with their values for rank 1 of the example."""
    values = {variable["name"]: variable["value"] for variable in by_name(_pod()["spec"]["containers"][0]["env"])}
    rows = (
        (code(name), "yes" if name in PACKED_VARIABLES else "", code(values.get(name)), text)
        for _, name, text in meanings(Env)
    )
    return table(("Variable", "Packed", "Example", "Meaning"), rows)


def labels() -> str:
    """The labels on pods and Service."""
    return table(("Label", "Meaning"), ((code(name), text) for _, name, text in meanings(Label)))


def exit_codes() -> str:
    """The exit codes of a training process that have a meaning."""
    return table(("Code", "Meaning"), ((value, text) for _, value, text in meanings(ExitCode)))


def pod() -> str:
    """The full manifest of a pod."""
    return as_yaml(_pod())


def service() -> str:
    """The full manifest of a Service."""
    made = (action for action in _actions() if isinstance(action, Create))
    return as_yaml(next(action.manifest for action in made if action.kind is SERVICE))


def _pod() -> dict[str, Any]:
    return next(action.build() for action in _actions() if isinstance(action, CreatePod) and action.node == 1)


def _actions() -> tuple[Action, ...]:
    job = DDPJob.from_dict(yaml.safe_load(EXAMPLE))
    return decide(Snapshot(datetime(2026, 1, 1, tzinfo=UTC), job)).actions
