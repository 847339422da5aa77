"""`ddpjob stop` of a run that nobody runs any more."""

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call


@pytest.mark.usefixtures("digits")
def test_what_is_done_for_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(parse(["stop", "digits"])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ddpjob: Nothing runs until the job is resumed",
        "digits: Suspended. Nothing runs until the job is resumed",
        "Go on with: ddpjob run --resume digits",
    ]
