"""`ddpjob run --on JOB SCRIPT`: what it sends to rank 0's supervisor, and what it prints of answers and logs."""

import base64
import getpass
import importlib
import json
import queue
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.packages import Packages
from ddpjob_operator.cli.phrases import INTERRUPTED
from ddpjob_operator.client import ClusterError, JobPod
from ddpjob_operator.client.archive import pack
from ddpjob_operator.client.errors import UnreachableError
from ddpjob_operator.client.source import read_file

from tests.support.waiting import patience
from tests.unit.client.api import A_POD, a_job, jobs_with

run_on, held_run, talk = (
    importlib.import_module(f"ddpjob_operator.cli.cluster.{name}") for name in ("run_on", "held_run", "talk")
)

BEGUN = {"kind": "Begun", "attempt": 3}
BUSY = {"kind": "NotRun", "why": "it runs another program", "later": True}
OWN_LOG = (
    "attempt 2 begins",
    "old",
    "attempt 2 has ended",
    "attempt 3 begins",
    "mine",
    "attempt 3 has ended",
    "late",
)


def over(code: int = 0, message: str = "") -> dict[str, Any]:
    return {"kind": "Over", "exit_code": code, "message": message}


class Supervisor:
    """Rank 0's supervisor, at the other end of an exec. It says its next answers to each line."""

    def __init__(self, *answers: Sequence[Any], problem: str = "") -> None:
        self.problem, self.is_missing = problem, "executable file not found" in problem
        self.heard: list[dict[str, Any]] = []
        self._answers = list(answers)
        self._says: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def send(self, line: bytes) -> None:
        self.heard.append(json.loads(line))
        for answer in self._answers.pop(0):
            self._says.put(None if answer is None else json.dumps(answer).encode())

    def lines(self) -> Iterator[bytes]:
        yield b"words of an image"
        yield b'{"kind": []}'
        yield b"[" * 100_000  # Whoever replaces the program in the pod may say anything.
        yield from iter(self._says.get, None)


def a_hold(*, nodes: int = 2, held: bool = True, message: str = "") -> dict[str, Any]:
    command = ["ddpjob-supervise", "--hold", "600"] if held else ["python", "train.py"]
    template = {"spec": {"containers": [{"name": "trainer", "command": command}]}}
    return {**a_job("dev"), "spec": {"nodes": nodes, "template": template}, "status": {"message": message}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(talk, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(run_on, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(held_run, "LAST_LINES_SECONDS", patience(5))
    (tmp_path / "sub").mkdir()
    for name in ("train.py", "sub/train.py"):
        (tmp_path / name).write_text(f"'{name}'\n")
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def called(
        supervisors: Sequence[Supervisor],
        words: str = "train.py",
        *,
        job: dict[str, Any] | None = None,
        pods: Sequence[list[JobPod]] = (),
        log: Callable[..., Any] = lambda *_, **__: iter(zip(map(str, range(9)), OWN_LOG, strict=False)),
    ) -> int:
        waiting, looks = list(supervisors), list(pods)
        gang = [replace(A_POD, name=f"dev-{node}", uid=f"pod-{node}", node=node, incarnation=0) for node in range(2)]

        @contextmanager
        def start_in_pod(*exec_of: Any) -> Iterator[Supervisor]:
            assert exec_of == ("dev-0", "trainer", talk.SPEAK)
            yield waiting.pop(0)

        jobs = jobs_with(
            cluster=SimpleNamespace(start_in_pod=start_in_pod, close=lambda: None),
            get=lambda _: job or a_hold(),
            find=lambda found: found,
            pods=lambda _: looks.pop(0) if looks else gang,
            watch_pods=lambda _: iter([gang]),
            pod=lambda _: None,
            log=log,
        )
        monkeypatch.setattr(run_on, "Jobs", lambda _: jobs)
        code: int = run_on.run_on(lambda: None, parse(["run", "--on", "dev", *words.split()]))
        assert not waiting
        return code

    return called


def test_the_code_goes_to_a_supervisor_that_lacks_it_and_the_lines_of_this_run_are_shown(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    parts: list[dict[str, Any]] = []

    def log(pod: JobPod, *_: Any, **part: Any) -> Iterator[tuple[str, str]]:
        parts.append(part)
        return (
            (str(number), f"{line} of {pod.node}" if line == "mine" else line) for number, line in enumerate(OWN_LOG)
        )

    supervisor = Supervisor([{"kind": "SendCode"}], [], [BEGUN, {"kind": "Word"}, over(7, "rank 1 failed")])
    assert run([supervisor], "--env A=b=$c --env A=$d --env E= train.py -- --lr 1", log=log) == 7
    archive = pack(read_file(folder / "train.py").files)
    run_program = {
        "kind": "RunProgram",
        "words": ["train.py", "--lr", "1"],
        "digest": archive.digest,
        "by": f"{getpass.getuser()}@{socket.gethostname()}",
        "env": {"A": "$d", "E": ""},
        "packages": [],
        "requirements": "",
        "version": 3,
    }
    pieces = [{"kind": "TheCode", "data": data} for data in (base64.b64encode(archive.data).decode(), "")]
    assert supervisor.heard == [run_program, *pieces]
    said = capsys.readouterr()
    assert sorted(said.out.splitlines()) == ["[rank 0] mine of 0", "[rank 1] mine of 1"]
    assert re.fullmatch(r"ddpjob: attempt 3: rank 1 failed \(\d+s\); dev is held", said.err.splitlines()[-1])
    assert len(parts) == 2
    assert all(5 < part["since_seconds"] < 60 for part in parts), "and what is older than the start is skipped"


@pytest.mark.parametrize(
    ("words", "sent", "files"),
    [
        ("train.py", ["train.py"], {"train.py"}),
        ("sub/train.py -- a", ["train.py", "a"], {"train.py"}),
        ("--source . sub/train.py -- a", ["sub/train.py", "a"], {"train.py", "sub/train.py"}),
        ("--source . -m sub.train -- a", ["-m", "sub.train", "a"], {"train.py", "sub/train.py"}),
    ],
)
def test_a_program_is_named_as_it_lies_in_what_is_sent(words: str, sent: list[str], files: set[str]) -> None:
    command, source, _ = run_on.sent_program(parse(["run", "--on", "dev", *words.split()]))
    assert (command, {file.name for file in source.files}) == (sent, files)


@pytest.mark.parametrize(
    ("words", "packages", "files"),
    [
        ("--pip einops>=0.8 --pip tqdm sub/train.py", Packages(("einops>=0.8", "tqdm")), {"train.py"}),
        ("-r sub/req.txt train.py", Packages((), "req.txt"), {"train.py", "req.txt"}),
        (
            "-r sub/req.txt --source . train.py",
            Packages((), "sub/req.txt"),
            {"train.py", "sub/train.py", "sub/req.txt"},
        ),
    ],
)
def test_packages_are_named_and_their_file_is_sent(
    words: str, packages: Packages, files: set[str], folder: Path
) -> None:
    (folder / "sub" / "req.txt").write_text("einops\n")
    _, source, found = run_on.sent_program(parse(["run", "--on", "dev", *words.split()]))
    assert (found, {file.name for file in source.files}) == (packages, files)


def test_a_save_of_the_requirements_file_counts(folder: Path) -> None:
    (folder / "req.txt").write_text("einops\n")
    given = parse(["run", "--on", "dev", "--watch", "-r", "req.txt", "train.py"])
    before = run_on._stamps(given)
    (folder / "req.txt").write_text("einops>=0.8\n")
    assert run_on._stamps(given) != before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *((f"{option} train.py", f"{option.split()[0]} cannot be given with --on: it was chosen when dev was held")
          for option in (
            "--nodes 2", "--procs-per-node 2", "--name a", "--max-restarts 3", "--start-method warm",
            "--checkpoint a", "--history a",
        )),
        *((f"{option} train.py", f"{option.split()[0]} cannot be given with --on: it is for runs on this machine")
          for option in ("--attach 0", "--run-dir a", "--fresh", "--detach", "--dry-run")),
        ("-m train", "-m train: the module has to be sent; name its folder: --source ."),
        ("-- nvidia-smi", "held nodes run scripts and modules"),
        ("--include train.py -- nvidia-smi", "--include is for files of the --source folder"),
        ("gone.py", "gone.py"),
        ("--pip ./wheel train.py", "--pip ./wheel: must be a package as pip takes it"),
        ("-r gone.txt train.py", "gone.txt"),
        ("--env A train.py", "--env A: must be NAME=VALUE"),
        ("--env =A train.py", "--env =A: must be NAME=VALUE"),
        ("--env RANK=3 train.py", "--env: RANK is set by DDPJob itself; remove it"),
    ],
)  # fmt: skip
def test_what_cannot_run_there_is_refused_before_anything_is_asked(
    run: Callable[..., int], words: str, message: str
) -> None:
    with pytest.raises(BadInputError) as refused:
        run([], words)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [(0, "", "done"), (INTERRUPTED, "was ended", "was ended"), (1, "a\x1b[2J", r"a\x1b[2J")],
)
def test_its_exit_code_is_that_of_the_program(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], code: int, message: str, said: str
) -> None:
    assert run([Supervisor([BEGUN, over(code, message)])]) == code
    assert f"attempt 3: {said} (" in capsys.readouterr().err


def test_while_the_hold_is_not_ready_each_reason_is_said_once(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    starts, elsewhere = replace(A_POD, started=False), replace(A_POD, node=1)
    supervisors = [Supervisor([BUSY]), Supervisor([BUSY]), Supervisor([BEGUN, over()])]
    looks = [[], [replace(starts, incarnation=0)], [replace(elsewhere, incarnation=0)]]
    assert run(supervisors, pods=looks) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "not ready" in line]
    assert said == [f"ddpjob: dev is not ready: {why}" for why in ("its pods have not started", BUSY["why"])]


def test_a_no_for_good_ends_it(run: Callable[..., int]) -> None:
    with pytest.raises(BadInputError, match=r"^dev: too old$"):
        run([Supervisor([BUSY | {"why": "too old", "later": False}])])


def test_a_no_while_code_is_sent_is_said_although_the_rest_cannot_be_sent(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor([{"kind": "SendCode"}], [{"kind": "NotRun", "why": "No space left on device"}])
    sends = supervisor.send

    def send(line: bytes) -> None:
        if len(supervisor.heard) == 2:
            raise UnreachableError("the connection to the pod broke")
        sends(line)

    monkeypatch.setattr(supervisor, "send", send)
    with pytest.raises(BadInputError, match=r"^dev: No space left on device$"):
        run([supervisor])


def test_a_job_with_a_program_of_its_own_is_not_a_hold(run: Callable[..., int]) -> None:
    with pytest.raises(BadInputError, match=r"^dev is not held: it has a program of its own"):
        run([], job=a_hold(held=False))


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("", "lost rank 0's supervisor: the connection was closed"),
        ("no\x1b route", r"lost rank 0's supervisor: no\x1b route"),
        ("/usr/bin/python: No module named ddpjob_supervisor", "the image lacks what this needs: ddpjob "),
        ("exec: python: executable file not found in $PATH", "the image lacks what this needs: ddpjob "),
    ],
)
def test_a_connection_that_ends_is_told_with_the_reason(
    run: Callable[..., int], problem: str, message: str, *, begun: bool
) -> None:
    with pytest.raises(ClusterError) as lost:
        run([Supervisor([BEGUN] * begun + [None], problem=problem)])
    assert str(lost.value).startswith(message)


@pytest.mark.parametrize(
    "answers", [[{"kind": "Begun"}], [{"kind": "Begun", "attempt": "3"}], [BEGUN, {"kind": "Over", "exit_code": 0}]]
)
def test_an_answer_of_another_form_is_told(run: Callable[..., int], answers: list[dict[str, Any]]) -> None:
    with pytest.raises(ClusterError, match="answers in words of its own: use the ddpjob of the image's release"):
        run([Supervisor(answers)])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_ctrl_c_lets_ranks_save_the_second_one_ends_them_and_the_third_one_does_not_wait_for_that(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    presses, over_before = [KeyboardInterrupt] * times, held_run.HeldRun.over

    def pressed(self: Any) -> Any:
        if presses:
            raise presses.pop()
        return over_before(self)

    monkeypatch.setattr(held_run.HeldRun, "over", pressed)
    answers: list[list[Any]] = [[], [], []]
    answers[times - 1] = [over(INTERRUPTED)]
    supervisor = Supervisor([BEGUN], *answers)
    with pytest.raises(KeyboardInterrupt) if times == 3 else nullcontext():
        assert run([supervisor]) == INTERRUPTED
    assert [line["kind"] for line in supervisor.heard[1:]] == ["LetFinish", "Interrupt"][:times]
    said = capsys.readouterr().err
    assert "ddpjob: the ranks may save and end; dev keeps its pods. Ctrl-C again ends them at once" in said
    assert ("ddpjob: ending the ranks" in said) is (times > 1)


def test_a_save_after_ctrl_c_does_not_end_ranks_that_save() -> None:
    asked, presses = list[str](), [KeyboardInterrupt]

    def look() -> None:
        if presses:
            raise presses.pop()

    ends = iter([None, None, held_run.Ran(3, INTERRUPTED, "it saved and stopped")])
    ran, interrupted = run_on.follow(*a_run(ends, asked, look), saves=EDITED)
    assert (asked[1:], interrupted, ran.message) == (["stop"], True, "it saved and stopped")


EDITED = SimpleNamespace(happened=lambda: True)


def a_run(ends: Iterator[Any], asked: list[str], look: Callable[[], None] = lambda: None) -> tuple[Any, str, Any]:
    """The arguments of `follow`: a run that says of itself what `ends` says, and notes what it is asked."""

    def over() -> Any:
        if isinstance(end := next(ends), Exception):
            raise end
        return end

    run = SimpleNamespace(over=over, is_read=True, stop=lambda: asked.append("stop"), end=lambda: asked.append("end"))
    return run, "dev", SimpleNamespace(following=nullcontext, look=look, tell=asked.append)


@pytest.mark.parametrize(("code", "message"), [(INTERRUPTED, "it was ended by a save"), (1, "rank 0 failed")])
def test_a_run_that_a_save_has_ended_says_so(code: int, message: str) -> None:
    ends = iter([None, held_run.Ran(3, code, "it was interrupted" if code == INTERRUPTED else message)])
    ran, interrupted = run_on.follow(*a_run(ends, asked := []), saves=EDITED)
    assert (asked, interrupted, ran.message) == (["end"], False, message)


def test_a_lost_connection_ends_the_command_but_not_with_watch() -> None:
    lost, calm = talk.LostError("lost rank 0's supervisor: no route"), SimpleNamespace(happened=lambda: False)
    assert run_on.follow(*a_run(iter([None, lost]), asked := []), saves=calm) == (None, False)
    assert asked == ["lost rank 0's supervisor: no route"]
    with pytest.raises(talk.LostError):
        run_on.follow(*a_run(iter([None, lost]), []))

    def press() -> None:
        raise KeyboardInterrupt

    with pytest.raises(talk.LostError):
        run_on.follow(*a_run(iter([None, lost, lost]), [], press), saves=calm)


@pytest.mark.parametrize(
    "error", [talk.LostError("lost"), talk.NotNowError("dev: train.py runs here"), UnreachableError("no route")]
)
@pytest.mark.parametrize("saved", [False, True], ids=["until it can run", "until the next save"])
def test_with_watch_a_save_that_cannot_be_run_now_is_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, saved: bool
) -> None:
    outcomes, ran = iter([(None, False), error, error, (held_run.Ran(4, 0, ""), True)]), list[str]()
    saves = iter(["first", "second"])

    def run_once(_: object, __: object, sent: str, *___: object) -> Any:
        ran.append(sent)
        if isinstance(outcome := next(outcomes), Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(run_on, "_run", run_once)
    monkeypatch.setattr(run_on, "_packed", lambda wanted, _: wanted if isinstance(wanted, str) else "as it was")
    monkeypatch.setattr(run_on._Watched, "saved", lambda _: next(saves))
    monkeypatch.setattr(run_on.Saves, "within", lambda *_: saved and len(ran) == 2)
    monkeypatch.setattr(run_on, "Jobs", lambda _: jobs_with(get=lambda _: a_hold()))
    assert run_on.run_on(lambda: None, parse(["run", "--on", "dev", "--watch", "train.py"])) == 0
    assert ran == ["as it was", "first", *(["second", "second"] if saved else ["first", "first"])]
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert told == [f"error: {error}"] * (1 + saved), "not at each try"
    monkeypatch.setattr(run_on, "_run", Mock(side_effect=error))
    with pytest.raises(type(error)):  # The first time, whoever typed the command is still looking.
        run_on.run_on(lambda: None, parse(["run", "--on", "dev", "--watch", "train.py"]))


def test_last_lines_are_waited_for_on_the_followed_nodes_but_not_for_ever(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(held_run, "FOLLOWED", 1)
    monkeypatch.setattr(held_run, "LAST_LINES_SECONDS", patience(0.3))
    assert (
        run([Supervisor([BEGUN, over()])], log=lambda *_, **__: iter([("1", "attempt 3 begins"), ("2", "mine")])) == 0
    )
    assert capsys.readouterr().out.splitlines() == ["[rank 0] mine"]


def test_who_runs_it_is_told_by_the_machine_where_the_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert talk.who() == socket.gethostname()
