"""TAB in a real bash, after `source <(ddpjob completion bash)`."""

import os
import subprocess

import pytest

from tests.local.here import BIN, Here
from tests.support.waiting import patience

TAB = """\
source <(ddpjob completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$(complete -p ddpjob | sed 's/.*-F \\([^ ]*\\) .*/\\1/')" ddpjob
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""Asks the function that bash would ask, with what bash tells it, for what stands on the line."""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ddpjob logs tr", ["train", "train-2"]),
        ("ddpjob run --resume train-", ["train-2 "]),
        ("ddpjob status --wa", ["--watch "]),
    ],
)
def test_bash_offers_what_can_stand_where_the_cursor_is(line: str, offered: list[str], here: Here) -> None:
    for name in ("train", "train-2", "other"):
        (here.directory / "runs" / name).mkdir(parents=True)
        (here.directory / "runs" / name / "job.json").touch()
    env = {
        **os.environ,
        **here.state,
        "KUBECONFIG": "nowhere",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "DDPJOB_RUN_DIR": "runs",
    }
    bash = ["bash", "--norc", "-c", TAB, "bash", line]
    said = subprocess.run(
        bash, cwd=here.directory, env=env, capture_output=True, text=True, check=False, timeout=patience(60)
    )
    assert (said.stdout.splitlines(), said.stderr) == (offered, "")
