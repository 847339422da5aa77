"""What `ddpjob submit` sends to a cluster, and what it prints."""

import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, call

import pytest
import yaml
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.api.git_state import GitState
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.parcel import Parcel
from ddpjob_operator.cli.cluster.shown_job import ShownJob
from ddpjob_operator.cli.cluster.submit import _folder, submit
from ddpjob_operator.cli.packed import PackedProgram
from ddpjob_operator.cli.phrases import INTERRUPTED
from ddpjob_operator.engine import Event
from ddpjob_operator.view_model import LoggedProgress, Report

from tests.unit.client.api import JOBS, Scripted, a_cluster, a_list, refused

JOB: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "digits"},
    "spec": {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}},
}
MADE = JOB | {"metadata": {"name": "digits", "namespace": "team", "uid": "uid-1"}}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}}
TAKEN = refused(409, "AlreadyExists", name="digits")


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(yaml.safe_dump_all([JOB, SECRET]), encoding="utf-8")
    Path("train.py").write_text("", encoding="utf-8")


def submitted(words: str, *answers: Any) -> tuple[int, Scripted]:
    cluster = a_cluster(*answers)
    return submit(cluster, parse(["submit", *words.split()])), cluster


def test_a_job_is_made_in_the_namespace_and_how_to_go_on_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, cluster = submitted("job.yaml", MADE)
    document = JOB | {"metadata": {"name": "digits", "namespace": "team"}}
    assert (code, cluster.asked) == (0, [("POST", JOBS, document, {"fieldValidation": "Strict"})])
    told, made, *_, watch, stop = capsys.readouterr().out.splitlines()
    assert told == "Secret in job.yaml is not submitted; create it with: kubectl apply -f job.yaml"
    assert made.startswith("digits: 2 nodes")
    assert made.endswith(", submitted to namespace team of context here")
    assert watch.endswith(" logs digits -n team --follow")
    assert stop.endswith(" delete digits -n team")


OLD = {"ddpjob.dev/traceparent": f"00-{'1' * 32}-{'2' * 16}-00", "ddpjob.dev/tracestate": "old=1"}
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"ddpjob.dev/traceparent": PARENT, "ddpjob.dev/tracestate": "a=1"}


@pytest.mark.parametrize(
    ("environment", "recorded", "warns_of"),
    [
        ({"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}, TRACE, None),
        ({"TRACEPARENT": PARENT, "TRACESTATE": ""}, {"ddpjob.dev/traceparent": PARENT}, None),
        ({"TRACEPARENT": PARENT, "TRACESTATE": "?"}, {"ddpjob.dev/traceparent": PARENT}, "TRACESTATE, because it"),
        ({"TRACEPARENT": "\x1b[1m" * 100_000, "TRACESTATE": "a=1"}, OLD, "TRACEPARENT and TRACESTATE, because they"),
        ({}, OLD, None),
    ],
)
@pytest.mark.parametrize("words", ["job.yaml", "--name digits -- train", "job.yaml --dry-run -o yaml"])
def test_the_trace_context_of_the_environment_is_recorded_in_place_of_another(
    environment: dict[str, str],
    recorded: dict[str, str],
    warns_of: str | None,
    words: str,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    traced = JOB | {"metadata": {"name": "digits", "annotations": {"example.com/owner": "jane", **OLD}}}
    Path("job.yaml").write_text(yaml.safe_dump(traced), encoding="utf-8")
    for name in ("TRACEPARENT", "TRACESTATE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, cluster = submitted(words, *([MADE] * 5))
    printed = capsys.readouterr()
    sent = next(body for verb, path, body, _ in reversed(cluster.asked) if (verb, path) == ("POST", JOBS))
    shown = yaml.safe_load(printed.out) if "-o" in words else sent
    expected = {} if "-- train" in words and recorded == OLD else recorded
    for document in (sent, shown):
        annotations = document["metadata"].get("annotations", {})
        assert {key: text for key, text in annotations.items() if "trace" in key} == expected
    assert printed.err.count("\n") == (warns_of is not None)
    assert printed.err.startswith(f"warning: the job does not get {warns_of} " if warns_of else "")
    assert len(printed.err) < 300


def test_the_commit_of_what_is_submitted_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = GitState("a" * 40, "main", dirty=True)
    monkeypatch.setattr(sys.modules[submit.__module__], "git_state", lambda _: state)
    for words in ("job.yaml", "--name digits -- train"):
        _, cluster = submitted(words, MADE)
        sent = next(body for verb, path, body, _ in reversed(cluster.asked) if (verb, path) == ("POST", JOBS))
        assert state.annotations.items() <= sent["metadata"]["annotations"].items()


@pytest.mark.parametrize(
    ("words", "file", "folder"),
    [
        ("yaml/job.yaml", "yaml/job.yaml", "yaml"),
        ("-", "-", "."),
        ("train.py", None, "."),
        ("code/train.py", None, "code"),
        ("--source code -- train", None, "code"),
        ("-m train", None, "."),
        ("--image any -- train", None, "."),
    ],
)
def test_the_commit_is_that_of_the_folder_that_the_program_or_the_file_is_in(
    words: str, file: str | None, folder: str
) -> None:
    for name in ("code/train.py", "yaml/job.yaml"):
        Path(name).parent.mkdir()
        Path(name).touch()
    parcel = Parcel({}, None, file=Path(file) if file else None)
    assert _folder(parcel, parse(["submit", *words.split()])).resolve() == Path(folder).resolve()


def test_the_commit_of_a_function_is_that_of_its_module(tmp_path: Path) -> None:
    packed = PackedProgram({}, "call.py", "train", origin=tmp_path / "elsewhere")
    assert _folder(Parcel({}, None), parse(["submit", "--image", "any"]), packed) == tmp_path / "elsewhere"


def test_a_dry_run_tells_what_there_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    code, cluster = submitted("job.yaml --dry-run", MADE)
    assert (code, [query["dryRun"] for *_, query in cluster.asked]) == (0, ["All"])
    said = capsys.readouterr().out
    assert "can be submitted to namespace team of context here" in said
    assert "It would get a Service and 2 pods; nothing was created" in said
    assert "Watch it with" not in said


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_would_be_made_is_printed_alone(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert submitted(f"job.yaml --dry-run -o {output}", MADE)[0] == 0
    printed = capsys.readouterr().out
    read = json.loads(printed) if output == "json" else yaml.safe_load(printed)
    assert read["metadata"] == {"name": "digits", "namespace": "team"}
    assert read["spec"]["nodes"] == 2


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_code_and_job_are_printed_as_kubectl_takes_them(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"train.py --source . --image any --dry-run -o {output}"
    assert submitted(words, MADE, {"metadata": {}})[0] == 0
    printed = capsys.readouterr().out
    read = json.loads(printed)["items"] if output == "json" else [*yaml.safe_load_all(printed)]
    assert [one["kind"] for one in read] == ["ConfigMap", "DDPJob"]


@pytest.mark.parametrize(
    ("words", "answers", "error"),
    [
        ("job.yaml -o json", (), "-o json works only with --dry-run; add it"),
        ("job.yaml --image any", (), "--image is for programs; job.yaml says what to run: edit it instead"),
        (
            "notes.txt --image any",
            (),
            "--image is for programs; notes.txt is not a script, whose name ends with .py",
        ),
        ("-f job.yaml train.py", (), "--filename is for programs; job.yaml says what to run"),
        ("job.yaml", (TAKEN,), "Change it: kubectl apply -n team -f job.yaml. To run it again, first: "),
        ("train.py --image any", (TAKEN,), "To run the new job beside it, use --name; to replace it, use --replace"),
    ],
)
def test_what_cannot_be_submitted_says_what_to_do(words: str, answers: Any, error: str) -> None:
    Path("notes.txt").write_text("no YAML\n")
    with pytest.raises(BadInputError) as caught:
        submitted(words, *answers)
    assert error in str(caught.value)


@pytest.mark.parametrize(("given", "path"), [("", "other"), ("-n other", "other"), ("-n team", None)])
def test_the_files_namespace_and_the_given_one_must_agree(given: str, path: str | None) -> None:
    Path("job.yaml").write_text(json.dumps(JOB | {"metadata": {"name": "digits", "namespace": "other"}}))
    if path is None:
        with pytest.raises(BadInputError, match=r"metadata\.namespace is other and --namespace is team"):
            submitted(f"job.yaml {given}")
    else:
        assert f"/namespaces/{path}/" in submitted(f"job.yaml {given}", MADE)[1].asked[0][1]


def test_a_job_can_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(JOB)))
    assert submitted("-", MADE)[1].asked[0][2]["spec"]["nodes"] == 2


class Living:
    """A job that lives for three rounds, and logs that cannot be read from the second on."""

    def __init__(self) -> None:
        self.rounds = 0
        self.settled = self.stopped = 0

    @property
    def over(self) -> bool:
        return self.rounds == 3

    @property
    def problem(self) -> str:
        return "forbidden" if self.rounds > 1 else ""

    def news(self, seconds: float) -> Iterator[str]:
        assert seconds > 0
        self.rounds += 1
        yield f"news {self.rounds}"

    def settle(self) -> None:
        self.settled += 1

    def follow(self) -> None:
        assert not self.stopped

    def stop(self) -> None:
        self.stopped += 1


class Telling:
    """A display that keeps what it is told, and whose output is closed after the first event if `unread` is true."""

    def __init__(self, *, unread: bool) -> None:
        self.told: list[Any] = []
        self._unread = unread

    @contextmanager
    def following(self, lost: Callable[[], None], status: Callable[[], Any]) -> Iterator[None]:
        assert callable(status)
        self._lost = lost
        yield

    def tell(self, event: Any) -> None:
        self.told.append(event)
        if self._unread:
            self._lost()


@pytest.mark.parametrize(("rounds", "unread", "late"), [(3, False, False), (1, True, False), (0, False, True)])
def test_while_a_job_lives_its_news_are_told_and_once_that_there_are_no_logs(
    *, rounds: int, unread: bool, late: bool
) -> None:
    living, display = Living(), Telling(unread=unread)
    shown = ShownJob(cast("Any", living), cast("Any", living), cast("Any", display))
    shown.follow(deadline=0.0 if late else math.inf)
    notice = Event(warning=True, reason="Notice", message="no logs: forbidden")
    assert display.told == ["news 1", "news 2", notice, "news 3"][: rounds + (rounds > 1)]
    assert (living.settled, living.stopped) == (rounds == 3, 2)


def test_who_does_not_wait_for_a_job_any_longer_is_told_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Mock()
    shown.follow.side_effect = KeyboardInterrupt
    monkeypatch.setattr(ShownJob, "on", lambda *_: shown)
    assert submitted("job.yaml --wait", MADE)[0] == INTERRUPTED
    shown.display.leave_if_blocked.assert_called_once_with(INTERRUPTED)
    *_, goes_on, watch, stop = capsys.readouterr().out.splitlines()
    assert goes_on == "digits goes on in the cluster"
    assert watch.endswith(" logs digits -n team --follow")
    assert stop.endswith(" delete digits -n team")


@pytest.mark.parametrize(("state", "code"), [("Succeeded", 0), ("Failed", 1), ("Running", 1)])
def test_who_waits_for_a_job_sees_how_it_ended_unless_nobody_reads_it(
    state: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = DDPJob.from_dict({**MADE, "status": {"state": state, "message": "so it was"}})
    progress = LoggedProgress(saved=Report("saved", {"step": "7", "checkpoint": "/runs/step-7"}))
    shown = SimpleNamespace(
        follow=lambda: None,
        life=SimpleNamespace(job=job, over=state != "Running"),
        display=SimpleNamespace(progress=progress),
    )
    dropped = Mock()
    monkeypatch.setattr(ShownJob, "on", lambda *_: shown)
    monkeypatch.setattr(import_module(submit.__module__), "drop_output", dropped)
    assert submitted("job.yaml --wait", MADE)[0] == code
    said = capsys.readouterr().out
    assert dropped.called is (state == "Running")
    if state == "Running":
        assert "so it was" not in said
        return
    for line in (
        f"digits: {state}. so it was",
        "  checkpoint /runs/step-7",
        "  logs       ddpjob logs digits -n team",
    ):
        assert line in said.splitlines()


@pytest.mark.parametrize(("nodes", "says"), [(64, False), (65, True)])
def test_of_a_very_large_job_it_is_said_which_logs_are_shown(
    monkeypatch: pytest.MonkeyPatch, nodes: int, *, says: bool
) -> None:
    job = DDPJob.from_dict({**MADE, "spec": {**MADE["spec"], "nodes": nodes}})
    monkeypatch.setattr(import_module(ShownJob.__module__), "Life", lambda *_: SimpleNamespace(job=job))
    screen = Mock(is_terminal=False)
    shown = ShownJob.on(screen, Mock(), {})
    assert screen.print.mock_calls == [call("showing the logs of ranks 0 to 63 of 65")] * says
    assert shown.logs._nodes == range(64)


def test_who_interrupts_a_replacement_is_told_that_the_job_may_be_suspended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_module(submit.__module__), "replace", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        submitted("job.yaml --replace", MADE, MADE, a_list(MADE))
    again = "repeat this command or, to go on as before: ddpjob resume digits -n team"
    assert capsys.readouterr().out.endswith(f"\n\ndigits may still be suspended; {again}\n")
