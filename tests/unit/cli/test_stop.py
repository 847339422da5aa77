"""`ddpjob stop` of a run that nobody runs any more."""

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import RunDirectory


@pytest.mark.parametrize(("attached", "flag"), [(None, ""), (1, " --attach 1")])
def test_what_is_done_for_it_is_told(
    attached: int | None, flag: str, digits: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.attach(attached)
    assert call(parse(["stop", "digits"])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ddpjob: Nothing runs until the job is resumed",
        "digits: Suspended. Nothing runs until the job is resumed",
        f"Go on with: ddpjob run --resume digits{flag}",
    ]
