"""What the socket for programs of a held gang takes."""

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_supervisor.gang.messages import HeldProgram
from ddpjob_supervisor.hold.reception import _program
from ddpjob_supervisor.hold.words import COMMAND_BYTES, RunProgram

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("words", "digest"),
    [
        (("train.py", "x" * COMMAND_BYTES), DIGEST),
        (("train.py", *[""] * 30_000), DIGEST),
        (("train.py", "\x1b" * 15_000), DIGEST),
        (("train.py",), "0" * COMMAND_BYTES),
    ],
    ids=["a long word", "many empty words", "control characters", "a long digest"],
)
def test_a_program_that_would_not_fit_into_a_line_between_supervisors_is_refused(
    words: tuple[str, ...], digest: str
) -> None:
    with pytest.raises(ConfigError, match=f"the command line is longer than {COMMAND_BYTES} bytes"):
        _program(RunProgram(words, digest, "alice"))


def test_a_long_command_line_is_taken() -> None:
    words = ("train.py", *["--lr"] * 8000)
    assert _program(RunProgram(words, DIGEST, "alice\x1b")) == HeldProgram(words, DIGEST, r"alice\x1b")
