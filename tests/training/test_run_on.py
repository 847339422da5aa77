"""`ddpjob run --on`, with real supervisors and ranks, behind a cluster that is made up: its pods are processes."""

import contextlib
import importlib
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import ddpjob
import psutil
import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.talk import SPEAK
from ddpjob_operator.client import JobPod
from ddpjob_operator.sdk import holding

from tests.support.index import Index, Package, start_index
from tests.support.waiting import wait_for
from tests.training.gang import DEADLINE_SECONDS, SCRIPT, Gang, a_gang
from tests.training.test_hold import Conversation, packed

run_on = importlib.import_module("ddpjob_operator.cli.cluster.run_on")
"""The module; the room exports the function of the same name."""

NOW = "2026-01-01T00:00:00Z"
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "command": ["ddpjob-supervise", "--hold", "600"]}]}}


class Piped(Conversation):
    """An exec: a process whose input ends with the connection."""

    problem, is_missing = "", False

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def lines(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        yield from iter(self.process.stdout.readline, b"")


@dataclass
class Nodes:
    """As much of a cluster, and of the client for its jobs, as the command needs."""

    gang: Gang
    message: str = "2 nodes running"
    finished: bool = False

    @property
    def cluster(self) -> "Nodes":
        return self

    def apart(self) -> "Nodes":
        return self

    def close(self) -> None:
        """The threads that follow the logs end with this process."""

    def get(self, name: str) -> dict[str, Any]:
        told = {"reason": "Done", "message": "", "lastTransitionTime": NOW, "observedGeneration": 1}
        ended = {"type": "Complete", "status": "True", **told}
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": "team", "uid": self.gang.uid},
            "spec": {"nodes": self.gang.nodes, "template": TEMPLATE},
            "status": {"message": self.message, "conditions": [ended] if self.finished else []},
        }

    def find(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.get(job["metadata"]["name"])

    def pods(self, _: object) -> list[JobPod]:
        kind = {"incarnation": 0, "attempt": 1, "started": True, "ended": False}
        return [JobPod(f"dev-{node}", "team", f"pod-{node}", node, **kind) for node in self.gang.supervisors]

    def watch_pods(self, job: object) -> Iterator[list[JobPod]]:
        yield self.pods(job)
        time.sleep(3600)  # In a thread that the process does not wait for.

    def pod(self, pod: JobPod) -> JobPod:
        return pod

    def log(self, pod: JobPod, _: str = "", **__: object) -> Iterator[tuple[str, str]]:
        shown = 0
        for _ in count():
            lines = self.gang.log(pod.node).split("\n")[:-1]
            for text in lines[shown:]:
                yield datetime.now(UTC).isoformat(), text
            shown = len(lines)
            time.sleep(0.02)

    @contextlib.contextmanager
    def start_in_pod(self, name: str, container: str, command: Sequence[str]) -> Iterator[Piped]:
        assert (name, container, tuple(command)) == ("dev-0", "trainer", SPEAK)
        conversation = Piped({"DDPJOB_UID": self.gang.uid})
        try:
            yield conversation
        finally:
            conversation.leaves()


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    with a_gang(tmp_path, 2) as gang:
        gang.uid = str(uuid.uuid4())
        monkeypatch.setattr(run_on, "Jobs", lambda cluster: cluster)
        monkeypatch.chdir(tmp_path)
        gang.start("--hold", "600")
        yield Nodes(gang)


def run(nodes: Nodes, *words: str) -> int:
    code: int = run_on.run_on(lambda: nodes, parse(["run", "--on", "dev", *words]))
    return code


def test_a_script_is_sent_as_soon_as_the_nodes_are_ready_and_its_output_shown(
    nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    for text in ("print('first', flush=True)", "import os; print('second', os.environ['RANK'], flush=True)"):
        Path("train.py").write_text(text)
        assert run(nodes, "train.py") == 0
    said = capfd.readouterr()
    first, second = ["[rank 0] first", "[rank 1] first"], ["[rank 0] second 0", "[rank 1] second 1"]
    assert sorted(said.out.splitlines()[:2]) == first
    assert sorted(said.out.splitlines()[2:]) == second
    assert [line.partition("(")[0] for line in said.err.splitlines()][-1] == "ddpjob: attempt 2: done "
    assert said.err.splitlines()[-1].endswith("; dev is held")


def test_a_folder_is_sent_with_its_modules_and_arguments_reach_the_script(
    nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = nodes.gang.directory / "project"
    folder.mkdir()
    (folder / "beside.py").write_text("WORD = 'beside'")
    (folder / "train.py").write_text("import sys, beside\nprint(beside.WORD, sys.argv[1:], flush=True)")
    assert run(nodes, "--source", "project", "project/train.py", "--", "--lr", "0.1") == 0
    assert run(nodes, "--source", "project", "-m", "train") == 0
    printed = capfd.readouterr().out
    assert "[rank 1] beside ['--lr', '0.1']\n" in printed
    assert "[rank 0] beside []\n" in printed


def test_a_run_has_variables_of_its_own_beside_those_of_the_hold(
    nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    more = nodes.gang.directory / "more"
    more.mkdir()
    (more / "beside.py").write_text("WORD = 'found'")
    Path("train.py").write_text(
        "import os, sys\nprint(*(os.environ.get(name) for name in ('A', 'B', 'RANK', 'TORCH_LOGS')), flush=True)\n"
        "if 'A' in os.environ:\n    import beside\n    print(beside.WORD, flush=True)"
    )
    given = ("--env", "A=$(B) x", "--env", "B=", "--env", f"PYTHONPATH={more}", "--env", "TORCH_LOGS=+ddp")
    assert run(nodes, *given, "train.py") == 0
    printed = capfd.readouterr().out
    assert sorted(line for line in printed.splitlines() if "warning" not in line) == [
        "[rank 0] $(B) x  0 +ddp",
        "[rank 0] found",
        "[rank 1] $(B) x  1 +ddp",
        "[rank 1] found",
    ]
    warning = "TORCH_LOGS comes too late: PyTorch read it when it was imported. Give it to ddpjob hold --env"
    assert [line for line in printed.splitlines() if "warning" in line] == [f"[rank 0] warning: {warning}"]
    assert run(nodes, "train.py") == 0
    assert "[rank 1] None None 1 None\n" in capfd.readouterr().out


def test_the_exit_code_is_that_of_the_rank_that_failed_first(nodes: Nodes, capfd: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(
        "import os, time\nif os.environ['RANK'] == '1': raise SystemExit(3)\ntime.sleep(1000)"
    )
    assert run(nodes, "train.py") == 3
    assert "attempt 1: rank 1 failed: Application: ended with exit code 3 (" in capfd.readouterr().err


def test_ctrl_c_ends_the_ranks_and_keeps_the_nodes(nodes: Nodes, capfd: pytest.CaptureFixture[str]) -> None:
    gang = nodes.gang
    Path("train.py").write_text(SCRIPT)

    def interrupt() -> None:
        gang.await_steps(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert run(nodes, "train.py", "--", "1000000") == 130
    said = capfd.readouterr().err
    assert "the ranks may save and end; dev keeps its pods. Ctrl-C again ends them at once" in said
    assert "attempt 1: it was interrupted (" in said
    assert not gang.ranks(0)
    assert all(supervisor.poll() is None for supervisor in gang.supervisors.values())


def test_from_python_a_function_returns_its_result_and_its_exception_is_raised(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(holding, "Jobs", lambda cluster: cluster)
    monkeypatch.setattr(holding, "connect", lambda *_: nodes)
    Path("mymodel.py").write_text("""
import os

def train(lr):
    print("lr", lr, flush=True)
    if lr > 1:
        raise ValueError("it diverges")
    return {"rank": os.environ["RANK"], "weights": [lr] * 20_000}
""")
    monkeypatch.syspath_prepend(nodes.gang.directory)
    train = importlib.import_module("mymodel").train
    assert ddpjob.run(train, {"lr": 0.5}, on="dev") == {"rank": "0", "weights": [0.5] * 20_000}
    assert "[rank 1] lr 0.5\n" in capfd.readouterr().out
    with pytest.raises(ddpjob.RankFailed, match="it diverges") as failed:
        ddpjob.run(train, {"lr": 2}, on="dev", quiet=True)
    assert (failed.value.cause, failed.value.attempt, failed.value.exit_code) == ("Application", 2, 1)
    assert failed.value.remote_traceback.splitlines()[-1] == "ValueError: it diverges"
    assert 'raise ValueError("it diverges")' in failed.value.remote_traceback
    assert capfd.readouterr().out == ""
    Path("train.py").write_text("import ddpjob, os; ddpjob.set_result(os.environ['A'])")
    assert ddpjob.run("train.py", env={"A": 3}, on="dev") == "3"


DEAF = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: print("not yet", flush=True))
print("begun", flush=True)
while True:
    time.sleep(0.01)
"""


def test_a_second_ctrl_c_ends_ranks_that_still_save(nodes: Nodes, capfd: pytest.CaptureFixture[str]) -> None:
    gang = nodes.gang
    Path("train.py").write_text(DEAF)

    def interrupt() -> None:
        for line, number in (("begun", signal.SIGTERM), ("not yet", signal.SIGINT)):
            wait_for(line, partial(_has_line, gang, line), DEADLINE_SECONDS, story=gang.story)
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    threading.Thread(target=interrupt, daemon=True).start()
    assert run(nodes, "train.py") == 130
    assert "ddpjob: ending the ranks\n" in capfd.readouterr().err
    assert gang.status()["phase"] == "Holding"


def _has_line(gang: Gang, line: str) -> bool:
    return all(line in gang.log(node).splitlines() for node in range(gang.nodes))


def test_with_watch_each_save_runs_the_program_again_and_a_mistake_waits_for_the_next(
    nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    gang, script = nodes.gang, Path("project/train.py")
    script.parent.mkdir()
    (script.parent / ".gitignore").write_text("*.log\n")
    script.write_text("print('first', flush=True)")
    said = [""]

    def hears(line: str) -> bool:
        said[0] += "".join(capfd.readouterr())
        return line in said[0]

    def edits() -> None:
        def awaits(line: str) -> None:
            wait_for(line, partial(hears, line), DEADLINE_SECONDS, story=lambda: said[0])

        awaits("waiting for the next save")
        (script.parent / "run.log").write_text("ignored")
        script.write_text("print('oops'")
        awaits("error: project/train.py is not Python: line 1: ")
        (script.parent / "beside.py").write_text("WORD = 'second'")
        script.write_text("import beside, time\nprint(beside.WORD, flush=True)\ntime.sleep(1000)")
        awaits("[rank 1] second")
        (script.parent / "beside.py").write_text("WORD = 'third'")
        awaits("[rank 1] third")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=edits, daemon=True).start()
    assert run(nodes, "--watch", "--source", "project", "project/train.py") == 130
    hears("")
    assert gang.status()["attempt"] == 4  # Three have run: neither the log nor the mistake was a program.
    assert (said[0].count("it was ended by a save ("), said[0].count("it was interrupted (")) == (1, 1)


def test_while_another_program_runs_the_command_says_whose_it_is(nodes: Nodes) -> None:
    Path("train.py").write_text("print()")
    assert run(nodes, "train.py") == 0
    other = Conversation({"DDPJOB_UID": nodes.gang.uid})
    assert other.runs(packed(train=SCRIPT), "train.py", "1000000", by="bob")["kind"] == "Begun"
    with pytest.raises(BadInputError, match=r"^dev: train\.py \(code [0-9a-f]{12}, run by bob\) runs here$"):
        run(nodes, "train.py")
    other.leaves()


def test_of_a_hold_that_is_over_the_command_says_how_it_ended(nodes: Nodes) -> None:
    Path("train.py").write_text("print()")
    nodes.finished, nodes.message = True, "All ranks finished"
    with pytest.raises(
        BadInputError, match=r"^dev has ended: All ranks finished; delete it: ddpjob delete dev -n team"
    ):
        run(nodes, "train.py")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere.py", "there is no nowhere.py in "),
        ("--nodes 2 train.py", "--nodes cannot be given with --on: it was chosen when dev was held"),
        ("--detach train.py", "--detach cannot be given with --on: it is for runs on this machine"),
        ("-m train", "-m train: the module has to be sent; name its folder: --source ."),
        ("", "name a script, a module after -m, or a command after --"),
        ("-- bash train.sh", "held nodes run scripts and modules; name a script, or a module: -m NAME"),
    ],
)
def test_a_mistake_gets_one_message_before_anything_is_sent(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print()")
    with pytest.raises(BadInputError) as refused:
        run_on.run_on(pytest.fail, parse(["run", "--on", "dev", *words.split()]))
    assert message in str(refused.value)


TINY, OTHER = Package("ddpjobtiny", "1.2"), Package("ddpjobother", "3.0")
IMPORTS = """
import importlib.util
for name in ("ddpjobtiny", "ddpjobother"):
    print(name, importlib.util.find_spec(name) and __import__(name).VERSION, flush=True)
"""


@pytest.fixture
def index() -> Iterator[Index]:
    with start_index(TINY, OTHER) as index:
        yield index


def test_packages_are_installed_on_all_nodes_once_for_each_set_and_seen_by_no_other_run(
    nodes: Nodes, index: Index, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(IMPORTS)
    Path("requirements.txt").write_text("ddpjobother>=3  # the other one\n")
    none, tiny, other = (("None", "None"), ("None", "1.2"), ("3.0", "None"))

    def prints(versions: tuple[str, str], *words: str, installed: str = "") -> None:
        assert run(nodes, "--env", f"PIP_INDEX_URL={index.url}", *words, "train.py") == 0
        lines = sorted(capfd.readouterr().out.splitlines())
        assert sum(f"installed {installed} in " in line for line in lines) == (2 if installed else 0), lines
        expected = [f"[rank {rank}] {line}" for rank in range(2) for line in _versions(*versions)]
        assert [line for line in lines if line.split()[2] in {"ddpjobother", "ddpjobtiny"}] == expected

    prints(tiny, "--pip", "ddpjobtiny>=1", installed="ddpjobtiny 1.2")
    asked = len(index.asked)
    prints(none)
    prints(tiny, "--pip", "ddpjobtiny>=1")
    assert len(index.asked) == asked
    prints(other, "-r", "requirements.txt", installed="ddpjobother 3.0")


def _versions(other: str, tiny: str) -> list[str]:
    return [f"ddpjobother {other}", f"ddpjobtiny {tiny}"]


def test_if_a_package_cannot_be_installed_the_run_ends_with_the_last_error_of_pip(
    nodes: Nodes, index: Index, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("print('begun', flush=True)")
    assert run(nodes, "--env", f"PIP_INDEX_URL={index.url}", "--pip", "ddpjob-no-such", "train.py") == 1
    said = capfd.readouterr()
    why = "failed: ConfigError: cannot install packages: No matching distribution found for ddpjob-no-such ("
    assert said.err.splitlines()[-1].partition("rank ")[2][2:].startswith(why)
    assert "begun" not in said.out
    assert run(nodes, "train.py") == 0


def test_ctrl_c_ends_an_installation(nodes: Nodes, capfd: pytest.CaptureFixture[str]) -> None:
    gang = nodes.gang
    Path("train.py").write_text("print('begun', flush=True)")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple/"

        def interrupt() -> None:
            begun = partial(_has_line, gang, "installing ddpjobtiny")
            wait_for("pip", begun, DEADLINE_SECONDS, story=gang.story)
            assert "held: packages are installed for train.py (code " in gang.status()["hold"]["message"]
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        assert run(nodes, "--env", f"PIP_INDEX_URL={url}", "--pip", "ddpjobtiny", "train.py") == 130
        assert "attempt 1: it was interrupted (" in capfd.readouterr().err
        supervisors = [psutil.Process(supervisor.pid) for supervisor in gang.supervisors.values()]
        children = [child for supervisor in supervisors for child in supervisor.children(recursive=True)]
        assert [child for child in children if "pip" in child.cmdline()] == []
    assert gang.status()["phase"] == "Holding"
