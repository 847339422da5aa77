"""What the commands take, and what they make of it."""

from typing import Any

import pytest
from ddpjob_operator.cli import cluster
from ddpjob_operator.cli.arguments import parser


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        (["validate"], "FILE"),
        (["suspend"], "NAME"),
        (["resume"], "NAME"),
        (["scale", "digits"], "--nodes"),
        (["delete"], "NAME"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_command_says_what_it_lacks(command: list[str], lacks: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(command)
    assert lacks in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "waits"), [([], True), (["--wait"], True), (["--wait=true"], True), (["--wait=false"], False)]
)
def test_delete_waits_as_kubectl_does(flags: list[str], monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> None:
    called: dict[str, Any] = {}
    monkeypatch.setattr(cluster, "delete", lambda _jobs, name, wait: called.update(name=name, wait=wait) or 0)
    monkeypatch.setattr(cluster, "Jobs", lambda _cluster: None)
    cluster.COMMANDS["delete"](None, parser().parse_args(["delete", "digits", *flags]))  # type: ignore[arg-type]
    assert called == {"name": "digits", "wait": waits}
