"""`ddpjob version`: of the client, the operator and the CRD, and what of a cluster's cannot be read."""

from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.cli import cluster
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.cluster_version import version
from ddpjob_operator.cli.commands import call

from tests.unit.client.api import a_cluster, refused

OURS = version_of("ddpjob")
FORBIDDEN = refused(403)


def of(number: str) -> dict[str, Any]:
    return {"labels": {"app.kubernetes.io/version": number}}


@pytest.mark.parametrize(
    ("operator", "crd", "printed", "warned"),
    [
        ([of(OURS)], [of(OURS)], f"Operator Version: {OURS}\nCRD Version: {OURS}\n", ""),
        (
            [of("9.0.0")],
            [of(OURS)],
            f"Operator Version: 9.0.0\nCRD Version: {OURS}\n",
            f"WARNING: version difference: Client {OURS}; Operator 9.0.0; CRD {OURS}\n",
        ),
        (
            [of("9.0.0"), of(OURS)],
            FORBIDDEN,
            f"Operator Version: {OURS}, 9.0.0\nCRD Version: unknown (no)\n",
            f"WARNING: version difference: Client {OURS}; Operator {OURS}, 9.0.0\n",
        ),
        (FORBIDDEN, FORBIDDEN, "Operator Version: unknown (no)\nCRD Version: unknown (no)\n", ""),
        ([], [{}], "Operator Version: not installed\nCRD Version: unknown\n", ""),
    ],
    ids=["all alike", "the operator differs", "two operators", "nothing may be read", "nothing is labelled"],
)
def test_what_a_cluster_has_is_printed_and_a_difference_is_warned_of(
    operator: Any, crd: Any, printed: str, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = a_cluster(operator, crd)
    assert version(there) == 0
    assert capsys.readouterr() == (printed, warned)
    assert [path for _, path, *_ in there.asked] == [
        "/apis/apps/v1/deployments",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ]


@pytest.mark.parametrize(
    ("has_kubeconfig", "flags", "asks"),
    [(False, [], False), (True, [], True), (True, ["--client"], False), (False, ["--context", "here"], True)],
)
def test_a_cluster_is_asked_only_where_one_is_named(
    flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    has_kubeconfig: bool,
    asks: bool,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    if has_kubeconfig:
        (tmp_path / "kubeconfig").touch()
    asked = []
    monkeypatch.setattr(cluster, "call", lambda arguments: asked.append(arguments) or 0)
    assert call(parse(["version", *flags])) == 0
    assert capsys.readouterr().out == f"Client Version: {OURS}\n"
    assert bool(asked) is asks
