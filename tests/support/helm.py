"""Runs Helm on the project's charts."""

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.plant import Plant, build

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "ddpjob-operator"
RELEASE = "ddpjob-operator"
CLUSTER_CHART = ROOT / "charts" / "ddpjob-cluster"
CLUSTER_RELEASE = "ddpjob-cluster"
NAMESPACE = "ddpjob-system"


class HelmError(Exception):
    """Helm failed. The message is Helm's output."""


def helm(*arguments: str | Path, plant: Plant | None = None) -> str:
    """Runs helm, on a plant if one is given, and returns its output."""
    environment = os.environ | (plant.environment() if plant else {"KUBECONFIG": os.devnull})
    done = subprocess.run(
        [build.path("helm"), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HelmError(done.stdout + done.stderr)
    return done.stdout


@cache
def render(*values: str, chart: Path = CHART) -> list[dict[str, Any]]:
    """The objects of a chart, by default of the operator's, with these values, each given as NAME=VALUE."""
    release = CLUSTER_RELEASE if chart == CLUSTER_CHART else RELEASE
    text = helm("template", release, chart, "--namespace", NAMESPACE, *settings(values))
    return [
        one for one in yaml.load_all(text, yaml.CSafeLoader) if one
    ]  # The CRD is long: the loader in Python would take a second.


def user_role(name: str) -> dict[str, Any]:
    """One of the roles that the cluster's chart has for users, such as `ddpjob-edit`."""
    return named(render(chart=CLUSTER_CHART))["ClusterRole", name]


def settings(values: Iterable[str]) -> list[str]:
    """Values as arguments of helm."""
    return [word for value in values for word in ("--set", value)]


def named(objects: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects by kind and name."""
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}
