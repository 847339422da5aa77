"""The first lines of `ddpjob-supervise`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.running.program import Program
from ddpjob_supervisor import main
from ddpjob_supervisor.main import _parser, _preload, _program_in
from ddpjob_supervisor.node.zygote_process import PRELOADED, TRAINER_PRELOADED, Preload


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


@pytest.mark.parametrize(
    ("words", "name"),
    [(["train.py", "--lr", "1"], "train.py"), (["-m", "package.train"], "package.train"), (["--hold", "60"], None)],
)
def test_the_program_is_the_one_of_the_command_line_and_a_hold_has_none(
    words: list[str], name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    program = _program_in(_parser().parse_args(words))
    assert (program and program.name) == name
    with pytest.raises(ConfigError, match=r"^--hold waits for programs, and train.py is one: leave one of them out$"):
        _program_in(_parser().parse_args(["--hold", "60", "train.py"]))
    with pytest.raises(ConfigError, match="none-such"):
        _program_in(_parser().parse_args(["none-such.py"]))


@pytest.mark.parametrize(
    ("env", "processes"),
    [
        ({"DDPJOB_NPROC_PER_NODE": "4", "LOCAL_WORLD_SIZE": "2"}, 4),
        ({"LOCAL_WORLD_SIZE": "2"}, 2),
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "two"}, None),
        ({"LOCAL_WORLD_SIZE": "\u00b2"}, None),
    ],
)
def test_ranks_are_forked_from_what_has_their_share_of_the_threads(
    env: dict[str, str], processes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {main.Env.NPROC_PER_NODE if "NPROC" in name else name: value for name, value in env.items()}
    for name in (main.Env.NPROC_PER_NODE, "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(main, "threads_of_each", lambda ranks: 1000 + ranks)
    threads = 1 if processes is None else 1000 + processes
    assert _preload(None, ["mine"], None) == Preload((*PRELOADED, "mine"), threads=threads)
    trainer = Program(module=True, name="ddpjob_trainer")
    assert trainer.is_trainer
    assert _preload(trainer, [], None) == Preload((*PRELOADED, *TRAINER_PRELOADED), trainer.directory, threads)


UNCLEAR = "import os, sys\nos.environ['OMP_NUM_THREADS'] = sys.argv[1]\nimport torch\n"


COLD = "start method: cold, because "


@pytest.mark.parametrize(
    ("method", "modules", "node", "said"),
    [
        (None, [], "0", ("computes OMP_NUM_THREADS, which PyTorch reads", "takes longer. To start")),
        (None, ["mine"], "0", ("computes OMP_NUM_THREADS", ", and --preload mine has no effect. To start")),
        (None, [], "1", ()),
        ("warm", [], "0", ()),
    ],
)
def test_a_variable_that_only_the_run_script_knows_makes_ranks_start_cold_and_one_node_says_so(
    method: str | None, modules: list[str], node: str, said: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    patch, script = request.getfixturevalue("monkeypatch"), request.getfixturevalue("tmp_path") / "train.py"
    read = request.getfixturevalue("capsys").readouterr
    script.write_text(UNCLEAR)
    patch.setenv("NODE_RANK", node)
    patch.delenv("OMP_NUM_THREADS", raising=False)
    made = _preload(Program(module=False, name=str(script)), modules, method)
    assert (made is None) is (method is None)
    told = read().out
    assert told.startswith(COLD) if said else not told
    assert all(words in told for words in said)
    script.write_text(UNCLEAR.replace("sys.argv[1]", "'3'"))
    known = _preload(Program(module=False, name=str(script)), modules, method)
    assert known is not None
    assert known.set_by_program == {"OMP_NUM_THREADS": "3"}
    assert read().out == ""
