"""What a wrong kubeconfig gets: one clear line, before anything is asked of a cluster."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ddpjob_operator.cli.main import main

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "x"}}],
    "contexts": [
        {"name": "here", "context": {"cluster": "a", "user": "u", "namespace": "team"}},
        {"name": "broken", "context": {"cluster": "gone", "user": "u"}},
    ],
    "current-context": "here",
}
IN_A_NUMBER = CONFIG | {"contexts": [{"name": "here", "context": {"cluster": "a", "user": "u", "namespace": 7}}]}


Call = Callable[..., tuple[int, str]]


@pytest.fixture
def call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Call:
    """Calls `ddpjob` with a kubeconfig; gives its exit code and what it says."""
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(config: str | None, *arguments: str) -> tuple[int, str]:
        if config is not None:
            file.write_text(config)
        monkeypatch.setattr(sys, "argv", ["ddpjob", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (said.out, caplog.text) == ("", ""), "a logger without a handler would write to the terminal"
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.err

    return call


def test_a_cluster_that_does_not_answer_is_named_with_its_address(call: Call) -> None:
    code, said = call(yaml.safe_dump(CONFIG), "status", "digits")
    assert (code, said.count("\n")) == (1, 1), said
    for part in ("cannot reach the cluster of context here", "https://127.0.0.1:1", "Connection refused"):
        assert part in said


@pytest.mark.parametrize(
    ("config", "arguments", "code", "message"),
    [
        (
            None,
            ["delete", "x", "--cluster"],
            2,
            "/kubeconfig (KUBECONFIG). Set KUBECONFIG to yours, or give --kubeconfig FILE",
        ),
        (None, ["status", "--kubeconfig", "nowhere"], 2, "no kubeconfig nowhere; name a file that exists"),
        (CONFIG, ["status", "--context", "hare"], 2, "no context named hare in"),
        (CONFIG, ["status", "--context", "hare"], 2, "did you mean here?"),
        (CONFIG, ["status", "--context", "broken"], 2, "Expected object with name gone in"),
        (CONFIG | {"current-context": ""}, ["status"], 2, "no current context; choose with --context: here, broken"),
        (IN_A_NUMBER, ["status"], 2, "the namespace 7 of context here in"),
        (IN_A_NUMBER, ["status"], 2, "must be a string: put it in quotes"),
        ({}, ["status"], 2, "names no context; is it a kubeconfig?"),
        ("", ["status"], 2, "file is empty"),
        ("{", ["status"], 2, "cannot use the kubeconfig"),
        ("- 1", ["status"], 2, "cannot use the kubeconfig"),
    ],
)
def test_a_kubeconfig_that_is_no_use_says_why_in_one_line(
    call: Call, config: object, arguments: list[str], code: int, message: str
) -> None:
    text = config if config is None or isinstance(config, str) else yaml.safe_dump(config)
    got, said = call(text, *arguments)
    assert message in said
    assert (got, said.count("\n")) == (code, 1), said
