"""How a command that is advised is written."""

from pathlib import Path

import pytest
from ddpjob_operator.cli.invocation import itself


@pytest.mark.parametrize(
    ("called", "on_path", "said"),
    [
        ("/opt/venv/bin/ddpjob", "bin", "/opt/venv/bin/ddpjob"),
        (".venv/bin/ddpjob", ".venv/bin", ".venv/bin/ddpjob"),
        ("{here}/.venv/bin/ddpjob", ".venv/bin", "ddpjob"),
        ("{here}/bin/kubectl-ddpjob", "bin", "kubectl ddpjob"),
        ("ddpjob", "bin", "ddpjob"),
        ("-c", "bin", "ddpjob"),
    ],
    ids=["a path", "a relative one", "found on PATH", "a plugin", "a name", "no program at all"],
)
def test_what_a_command_advises_can_be_pasted(
    called: str, on_path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "ddpjob").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / on_path))
    monkeypatch.setattr("sys.argv", [called.format(here=tmp_path)])
    assert itself() == said
