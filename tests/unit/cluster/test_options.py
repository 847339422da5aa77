"""The operator's command line: what it does not understand, it names."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import NetworkPolicy, PodSecurity
from ddpjob_operator.cluster import options
from ddpjob_operator.cluster.options import parse
from ddpjob_operator.engine import Holder, Settings

MISTAKES = {
    "--label=team": "'team' is not a label, such as team=vision",
    "--label=team=a/b": "'team=a/b' is not a label, such as team=vision",
    "--label=helm.sh/chart=x": "'helm.sh/chart' is reserved: tools recognise a single object by it, not several",
    "--inherit-key=a/b/c": "'a/b/c' is not the key of a label or annotation, such as example.com/team",
    "--inherit-key=x.k8s.io/x": "'x.k8s.io/x' is reserved: tools recognise a single object by it, not several",
    "--gpu-resource=gpu": "'gpu' is not the name of a resource, such as nvidia.com/gpu.shared",
    "--class=can ary": "'can ary' is not a class: it must be the value of a label, such as canary",
    "--port=70000": "'70000' is not a port: it must be a number from 0 to 65535",
    "--resync-seconds=0": "'0' must be a whole number of seconds, at least 1",
    "--resync-seconds=5m": "'5m' must be a whole number of seconds, at least 1",
    "--drain-protection-seconds=604801": "'604801' must be a whole number of seconds from 0 to 604800",
    "--avoid-broken-nodes-seconds=604801": "'604801' must be a whole number of seconds from 0 to 604800",
    "--drain-protection-seconds=1h": "'1h' must be a whole number of seconds from 0 to 604800",
    "--clock-settling-seconds=0": "'0' must be a whole number of seconds, at least 1",
}


@pytest.mark.parametrize("flag", MISTAKES)
def test_a_mistake_is_told_in_one_line(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([flag])
    said = capsys.readouterr().err.splitlines()[-1]
    name, _, _ = flag.partition("=")
    assert (ended.value.code, said) == (2, f"ddpjob-operator: error: argument {name}: {MISTAKES[flag]}")


def test_resources_that_count_as_gpus_are_named_one_by_one() -> None:
    given = parse(["--gpu-resource=nvidia.com/gpu.shared", "--gpu-resource=example.com/gpu-"])
    assert given.settings.gpu_resources == ("nvidia.com/gpu.shared", "example.com/gpu-")


def test_what_all_objects_get_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    given = parse(["--label=b=2", "--label=a=1", "--label=b=3", "--inherit-key=x", "--inherit-key=x"])
    assert (given.settings.labels, given.settings.inherited_keys) == ((("a", "1"), ("b", "3")), ("x",))
    with pytest.raises(SystemExit):
        parse([f"--inherit-key=key-{number}" for number in range(33)])
    assert "argument --inherit-key: given 33 times; at most 32 are allowed" in capsys.readouterr().err


FLAGS: dict[str, dict[str, Any]] = {
    "--namespace=b --namespace=a --namespace=b": {"namespaces": ["a", "b"]},
    "--namespace-selector=team=blue": {"namespace_selector": "team=blue"},
    "--no-leader-elect": {"lease": None},
    "--lease-namespace=a --lease-name=b": {"lease": ("a", "b"), "holder": Holder("a/b")},
    "--class=canary": {"holder": Holder("default/ddpjob-operator", "canary")},
    "--port=0": {"port": 0},
    "--probe-port=65535": {"probe_port": 65535},
    "--metrics-auth": {"metrics_auth": True},
    "--log-format=text": {"log_format": "text"},
    "--log-level=debug": {"log_level": "debug"},
    "--resync-seconds=1": {"resync_seconds": 1},
    "--clock-settling-seconds=1": {"clock_settling_seconds": 1},
    "--pod-security=none": {"pod_security": PodSecurity.NONE},
    "--network-policy=disabled": {"network_policy": NetworkPolicy.DISABLED},
    "--gpu-resource=a.b/c": {"gpu_resources": ("a.b/c",)},
    "--monitoring-namespace=a": {"monitoring_namespace": "a"},
    "--trainer-image=a": {"trainer_image": "a"},
    "--label=a=b": {"labels": (("a", "b"),)},
    "--inherit-key=a": {"inherited_keys": ("a",)},
    "--force-delete-lost-pods": {"force_delete_lost_pods": True},
    "--drain-protection-seconds=604800": {"drain_protection_seconds": 604_800},
    "--avoid-broken-nodes-seconds=0": {"avoid_broken_nodes_seconds": 0},
}


@pytest.mark.parametrize("flags", FLAGS)
def test_a_flag_sets_what_it_is_for_and_nothing_else(flags: str) -> None:
    given, without, of_jobs = parse(flags.split()), parse([]), {field.name for field in fields(Settings)}
    settings = {name: value for name, value in FLAGS[flags].items() if name in of_jobs}
    its_own = {name: value for name, value in FLAGS[flags].items() if name not in of_jobs}
    expected = replace(without, settings=replace(without.settings, **settings), identity=given.identity, **its_own)
    assert given == expected


def test_the_operator_is_in_the_namespace_of_its_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setattr(options, "OWN_NAMESPACE", tmp_path / "namespace")
    assert (parse([]).settings.operator_namespace, parse([]).lease) == ("", ("default", "ddpjob-operator"))
    (tmp_path / "namespace").write_text("of-its-account\n")
    assert parse([]).settings.operator_namespace == "of-its-account"
    monkeypatch.setenv("POD_NAMESPACE", "system")
    assert (parse([]).settings.operator_namespace, parse([]).lease) == ("system", ("system", "ddpjob-operator"))
    assert parse([]).identity != parse([]).identity, "two that were never one may not lead as one"


def test_without_flags_jobs_are_decided_about_as_the_engine_does_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "")
    assert parse([]).settings == replace(Settings(), holder=Holder("default/ddpjob-operator"))
    assert (Settings().drain_protection_seconds, Settings().avoid_broken_nodes_seconds) == (3600, 60)
    assert Settings().force_delete_lost_pods is False
