"""`ddpjob logs` of a run on this machine, where it does not take real processes."""

import io
import shutil
import sys
from pathlib import Path

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.main import main


@pytest.fixture
def _two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    logs = Path("ddpjob-runs/train/logs/attempt-1")
    logs.mkdir(parents=True)
    template = '{"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["x"]}]}}'
    Path("ddpjob-runs/train/job.json").write_text(
        f'{{"metadata": {{"name": "train"}}, "spec": {{"template": {template}}}}}'
    )
    for rank, lines in ((0, "one\ntwo\nthree\n"), (1, "four\n5%\r100%\nsix")):
        (logs / f"node-{rank}.log").write_text(lines)
    (logs / "node-1 (copy).log").write_text("of nobody\n")
    (logs.parent / "attempt-1 (copy)").mkdir()


@pytest.mark.usefixtures("_two_ranks")
@pytest.mark.parametrize(
    ("tail", "printed"),
    [
        ("--tail=2", ["[rank 0] two", "[rank 0] three", "[rank 1] 100%", "[rank 1] six"]),
        ("--tail=0", []),
        (
            "--tail=-1",
            ["[rank 0] one", "[rank 0] two", "[rank 0] three", "[rank 1] four", "[rank 1] 100%", "[rank 1] six"],
        ),
    ],
)
@pytest.mark.parametrize("follow", [[], ["--follow"]], ids=["there is", "and follow"])
def test_the_last_lines_of_each_rank_are_printed(
    tail: str, printed: list[str], follow: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(parse(["logs", "train", "--local", tail, *follow])) == 0
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.usefixtures("_two_ranks")
@pytest.mark.parametrize("flags", [["--since", "5m"], ["--timestamps"]], ids=" ".join)
def test_lines_of_this_machine_have_no_times(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(parse(["logs", "train", "--local", *flags])) == 2
    said = f"{flags[0]} is for jobs on a cluster: lines of a run on this machine have no times; for its last lines"
    assert capsys.readouterr().err == f"error: {said} use --tail\n"


AT_FIVE = ', "status": {"attempt": 5}}'
IN_PLACE = """one
attempt 2 begins in place: rank 0 failed: Application: killed by SIGKILL
two
attempt 2 begins
attempt 9 begins
attempt 3 begins with a warm-up of the script's own
attempt 3 begins
three
"""


@pytest.mark.usefixtures("_two_ranks")
@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        (["--attempt=1"], [0]),
        (["--attempt=2"], [1, 2, 3, 4, 5]),
        (["--previous"], [1, 2, 3, 4, 5]),
        (["--previous", "--tail=1"], [5]),
        (["--attempt=3"], [6, 7]),
        ([], [*range(8)]),
    ],
)
def test_an_attempt_in_place_has_its_own_lines_of_a_log_that_it_shares(
    flags: list[str], printed: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path("ddpjob-runs/train")
    (run / "job.json").write_text((run / "job.json").read_text().removesuffix("}") + ', "status": {"attempt": 3}}')
    (run / "logs/attempt-1/node-0.log").write_text(IN_PLACE)
    assert call(parse(["logs", "train", "--local", "--node=0", *flags])) == 0
    lines = IN_PLACE.splitlines()
    assert capsys.readouterr().out.splitlines() == [f"[rank 0] {lines[number]}" for number in printed]


@pytest.mark.usefixtures("_two_ranks")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--node=2", "no log of node 2 in attempt 1; there is 0, 1"),
        ("--rank=1", "train has no rank 1: it has only rank 0"),
        ("--rank=-1", "train has no rank -1: it has only rank 0"),
        ("--attempt=9", "no log of attempt 9; there is 1 to 2, 3 to 5"),
        ("--attempt=0", "no log of attempt 0; there is 1 to 2, 3 to 5"),
        ("--node=0 --attempt=3", "no log of node 0 in attempt 3; there is none yet"),
    ],
)
def test_what_there_is_no_log_of_is_told_with_what_there_is(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path("ddpjob-runs/train")
    if "attempt" in words:
        (run / "job.json").write_text((run / "job.json").read_text().removesuffix("}") + AT_FIVE)
        (run / "logs/attempt-3").mkdir()
    assert call(parse(["logs", "train", "--local", *words.split()])) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.usefixtures("_two_ranks")
def test_where_there_is_no_earlier_attempt_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(parse(["logs", "train", "--local", "--previous"])) == 2
    assert capsys.readouterr().err == "error: there is no previous attempt; leave out --previous\n"
    shutil.rmtree("ddpjob-runs/train/logs/attempt-1")
    assert call(parse(["logs", "train", "--local"])) == 2
    assert capsys.readouterr().err == "error: nothing has been started yet\n"


@pytest.mark.usefixtures("_two_ranks")
def test_what_the_output_cannot_write_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("ddpjob-runs/train/logs/attempt-1/node-0.log").write_text("loss → 0\n", encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["ddpjob", "logs", "train", "--local", "--node=0"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert written.getvalue() == b"[rank 0] loss \\u2192 0\n"


@pytest.mark.usefixtures("_two_ranks")
def test_of_a_rank_the_log_of_its_node_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("ddpjob-runs/train")
    status = ', "status": {"nodes": 2, "procsPerNode": 2}}'
    (run / "job.json").write_text((run / "job.json").read_text().removesuffix("}") + status)
    assert call(parse(["logs", "train", "--local", "--rank=3", "--tail=1"])) == 0
    assert capsys.readouterr().out == "[node 1] six\n"
