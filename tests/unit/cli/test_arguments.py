"""What the commands take, and what they make of it."""

from typing import Any

import pytest
from ddpjob_operator.cli import cluster
from ddpjob_operator.cli.arguments import MEANINGS, parse, parser
from ddpjob_operator.cli.cluster import there
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.help import PLACES

from tests.unit.client.api import JOBS, a_cluster, a_job, a_list, refused


def test_the_overview_has_its_own_options_and_each_command_once() -> None:
    words = [line.split()[0] for line in parser().format_help().splitlines() if line.startswith("  ")]
    assert [word for word in words if word.startswith("-")] == ["-h,", "--version"]
    assert sorted(word for word in words if word in MEANINGS) == sorted(MEANINGS)


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
    ("words", "said"),
    [
        (["sumbit", "train.py"], "there is no command sumbit; did you mean submit?"),
        (["get", "digits"], "there is no command get; did you mean status?"),
        (["frobnicate"], "there is no command frobnicate; see: ddpjob help"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate; see: ddpjob help"),
    ],
)
def test_a_wrong_command_is_told_the_right_one(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(words)
    assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize(
    ("words", "name", "script"),
    [
        ("train.py", "NAME", "train.py"),
        ("dev train.py", "dev", "train.py"),
        ("dev --nodes 2 -- python train.py --lr 1", "dev", "train.py"),
    ],
)
def test_a_hold_has_no_script(words: str, name: str, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["hold", *words.split()])
    assert capsys.readouterr().err == (
        "error: a hold has no program: it runs those that are sent to it. Hold nodes with: ddpjob hold"
        f" {name}; and then: ddpjob run --on {name} {script}\n"
    )


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("run --on dev -n team train.py", {"namespace": "team", "nodes": None}),
        ("run job/train.py", {"target": "job/train.py"}),
        ("submit pod/train.py", {"target": "pod/train.py"}),
        ("prune --keep 0 --history x", {"keep": 0}),
        ("prune --older-than 3d --history x", {"older_than": 259200.0}),
        ("prune --older-than 30m --history x", {"older_than": 1800.0}),
    ],
)
def test_words_are_understood_as_their_command_means_them(words: str, given: dict[str, Any]) -> None:
    arguments = vars(parse(words.split()))
    assert {name: arguments[name] for name in given} == given


@pytest.mark.parametrize(
    ("words", "first"),
    [([], "usage: ddpjob "), (["help"], "usage: ddpjob "), (["help", "scale"], "usage: ddpjob scale ")],
    ids=" ".join,
)
def test_help_is_had_also_without_dashes(words: list[str], first: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(words)
    assert capsys.readouterr().out.startswith(first)


def test_the_help_has_each_command_once_by_its_place_on_a_screen_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])
    said = capsys.readouterr().out
    assert sorted(command for commands in PLACES.values() for command in commands) == sorted(MEANINGS)
    assert [sum(line.startswith(f"  {command} ") for line in said.splitlines()) for command in MEANINGS] == [1] * len(
        MEANINGS
    )
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("command", MEANINGS)
def test_the_help_of_a_command_begins_with_a_sentence_and_ends_with_examples_that_are_valid(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse([command, "--help"])
    usage, sentence, *_, last = capsys.readouterr().out.split("\n\n")
    assert usage.startswith(f"usage: ddpjob {command}")
    assert sentence.endswith(".")
    if command != "completion":
        title, *calls = last.splitlines()
        assert (title, len(calls)) == ("examples:", 2)
        assert [parse(call.split()[1:]).command for call in calls] == [command, command]


@pytest.mark.parametrize(
    ("since", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("2m0.5s", 121), ("10ms", 1), ("0s", 1)],
)
def test_a_length_of_time_is_taken_as_kubectl_takes_it(since: str, seconds: int) -> None:
    assert parse(["logs", "--since", since]).since == seconds


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--since=5", "5 is not a duration, such as 90s, 5m or 1h30m"),
        ("--since=yesterday", "yesterday is not a duration, such as 90s, 5m or 1h30m"),
        ("--since=-5m", "-5m is not a duration, such as 90s, 5m or 1h30m"),
        ("--tail=-2", "-2 is not a number of lines; -1 means all"),
        ("--tail=all", "all is not a number of lines; -1 means all"),
    ],
)
def test_what_is_no_part_of_a_log_is_refused(flag: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["logs", flag])
    assert capsys.readouterr().err.endswith(f"{said}; see: ddpjob logs --help\n")


@pytest.mark.parametrize(
    ("flags", "waits"), [([], True), (["--wait"], True), (["--wait=true"], True), (["--wait=false"], False)]
)
def test_delete_waits_as_kubectl_does(flags: list[str], monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> None:
    called: dict[str, Any] = {}
    monkeypatch.setattr(there, "delete", lambda _jobs, name, wait: called.update(name=name, wait=wait) or 0)
    monkeypatch.setattr(there, "Jobs", lambda _cluster: None)
    monkeypatch.setattr(cluster, "connect", lambda *_: None)
    assert call(parse(["delete", "digits", "--cluster", *flags])) == 0
    assert called == {"name": "digits", "wait": waits}


def test_all_that_are_named_are_deleted_before_any_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked_first = [answer for name in ("one", "two") for answer in (a_job(name), a_list(), {})]
    gone = [answer for name in ("one", "two") for answer in (refused(404, name=name), a_list())]
    answers = a_cluster(*asked_first, *gone)
    monkeypatch.setattr(cluster, "connect", lambda *_: answers)
    assert call(parse(["delete", "one", "two", "--cluster"])) == 0
    of_jobs = [(method, path) for method, path, *_ in answers.asked if path.startswith(JOBS)]
    assert of_jobs == [(method, f"{JOBS}/{name}") for method, name in ORDER]
    said = capsys.readouterr().out.splitlines()
    assert said == ["one: deleting it", "two: deleting it", "one: deleted", "two: deleted"]


ORDER = [("GET", "one"), ("DELETE", "one"), ("GET", "two"), ("DELETE", "two"), ("GET", "one"), ("GET", "two")]
"""What is asked of the jobs themselves, with the questions whether each is gone at the end."""
