"""What a wrong kubeconfig gets: one clear line, before anything is asked of a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BIN = Path(sys.executable).parent
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


def call(tmp_path: Path, config: str | None, *arguments: str) -> tuple[int, str]:
    file = tmp_path / "kubeconfig"
    if config is not None:
        file.write_text(config)
    without = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_SERVICE_")}
    done = subprocess.run(
        [BIN / "ddpjob", *arguments],
        env=without | {"KUBECONFIG": str(file)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_cluster_that_does_not_answer_is_named_with_its_address(tmp_path: Path) -> None:
    code, said = call(tmp_path, yaml.safe_dump(CONFIG), "status", "digits")
    assert (code, said.count("\n")) == (1, 1), said
    for part in ("cannot reach the cluster of context here", "https://127.0.0.1:1", "Connection refused"):
        assert part in said


@pytest.mark.parametrize(
    ("config", "arguments", "code", "message"),
    [
        (None, ["delete", "x"], 1, "there is no kubeconfig. Set KUBECONFIG to yours, or give it with --kubeconfig"),
        (None, ["status", "--kubeconfig", "nowhere"], 2, "no kubeconfig nowhere; name a file that exists"),
        (CONFIG, ["status", "--context", "hare"], 2, "no context named hare in"),
        (CONFIG, ["status", "--context", "hare"], 2, "did you mean here?"),
        (CONFIG, ["status", "--context", "broken"], 1, "Expected object with name gone in"),
        (CONFIG | {"current-context": ""}, ["status"], 2, "no current context; choose with --context: here, broken"),
        ({}, ["status"], 2, "no current context; choose with --context: none"),
        ("", ["status"], 1, "file is empty"),
        ("{", ["status"], 1, "cannot use the kubeconfig"),
        ("- 1", ["status"], 1, "cannot use the kubeconfig"),
    ],
)
def test_a_kubeconfig_that_is_no_use_says_why_in_one_line(
    tmp_path: Path, config: object, arguments: list[str], code: int, message: str
) -> None:
    text = config if config is None or isinstance(config, str) else yaml.safe_dump(config)
    got, said = call(tmp_path, text, *arguments)
    assert message in said
    assert (got, said.count("\n")) == (code, 1), said
