"""The first lines of `ddpjob-supervise`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_supervisor.main import _parser


def test_without_its_libraries_it_says_in_one_line_how_to_have_them() -> None:
    script = "import sys; sys.modules['msgspec'] = None; from ddpjob_supervisor.entry import supervise; supervise()"
    done = subprocess.run([sys.executable, "-c", script, "-m", "json"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} lacks msgspec: ")
    assert "ddpjob[cli]" in line


@pytest.mark.parametrize("program", ["ddpjob_supervisor.entry import supervise", "ddpjob_trainer.entry import train"])
def test_what_it_cannot_unpack_is_a_mistake_of_the_configuration(program: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = subprocess.run(
        [sys.executable, "-c", f"from {program} as begin; begin()", "-m", "json"],
        env=os.environ | {"DDPJOB_SUPERVISOR": "{", "DDPJOB_TERMINATION_LOG": str(report)},
        check=False,
        capture_output=True,
        text=True,
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line) == (2, f"error: {json.loads(report.read_text())['message']}")
    assert line.startswith("error: DDPJOB_SUPERVISOR must be a JSON object whose ")
    assert json.loads(report.read_text())["cause"] == "ConfigError"


@pytest.mark.parametrize("seconds", ["0", "-1", "1.5", "31622401", "1" * 19, "1800" + "0" * 18, "¹"])
def test_a_hold_has_a_limit_of_up_to_a_year(seconds: str) -> None:
    assert _parser().parse_args(["--hold", "31622400"]).hold == 31_622_400
    with pytest.raises(ConfigError, match=f"{seconds} must be a whole number of seconds from 1 to 31622400"):
        _parser().parse_args(["--hold", seconds])
