"""Runs real stages: they start pytest, and report tests that fail."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stages import __main__ as stages
from tests.stages import changes, table

ONLY_ONE = """
import sys
from tests.stages import __main__ as stages
from tests.stages.table import Stage, Tests

stages.STAGES = (Stage("one", runs=tuple(Tests((file,)) for file in sys.argv.pop().split(","))),)
sys.exit(stages.main())
"""


MEETS = """
def test_meets():
    (HERE / __name__).touch()
    end = time.monotonic() + 60
    while len(list(HERE.glob("test_*"))) - len(list(HERE.glob("test_*.py"))) < 2:
        assert time.monotonic() < end, "the other run has not begun"
        time.sleep(0.05)
"""


def tried(file: Path, body: str, *flags: str, beside: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a stage of one or two files. In the file, `seen(name)` returns whether it has been called before."""
    seen = f"import pathlib, pytest\ndef seen(name):\n    file = pathlib.Path({str(file.parent)!r}, name)\n"
    file.write_text(f"{seen}    return file.exists() or file.touch()\n{body}")
    command = [sys.executable, "-c", ONLY_ONE, *flags, ",".join(filter(None, [file.name, beside]))]
    here = os.environ | {"PYTHONPATH": str(Path.cwd())}
    return subprocess.run(command, cwd=file.parent, env=here, capture_output=True, text=True, check=False)


def test_a_test_that_passes_alone_is_told_with_all_that_it_said_first(tmp_path: Path) -> None:
    body = "def test_once():\n    print('a word of the first time')\n    assert seen('once')\n"
    done = tried(tmp_path / "test_it.py", body)
    assert done.returncode == 0, done.stdout
    first = done.stdout.partition("== FLAKY")[2]
    assert "a word of the first time" in first
    assert "AssertionError" in first or "assert" in first
    assert "FLAKY   " in done.stdout


def test_a_test_that_fails_twice_is_red_and_the_end_says_why(tmp_path: Path) -> None:
    never = "def test_never():\n    assert 1 + 1 == 3, 'a sum'\n"
    told = "def test_told():\n    pytest.fail('a word\\n' + '\\n'.join('abcdefgh'), pytrace=False)\n"
    done = tried(tmp_path / "test_it.py", never + told)
    assert done.returncode == 1
    why = done.stdout.partition("FAILED  ")[2].splitlines()
    assert [line.strip() for line in why[:7]] == [
        *("test_it.py::test_never", "AssertionError: a sum", "assert (1 + 1) == 3"),
        *("FAILED  test_it.py::test_told", "a word", "a", "…"),
    ]


@pytest.mark.parametrize("processes", [0, 1])
def test_tests_that_cannot_be_collected_are_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--numprocesses={processes}")
    done = tried(tmp_path / "test_it.py", "import nothing_of_this_name\n")
    assert done.returncode == 1
    assert "FAILED  test_it.py\n" in done.stdout
    assert "once more" not in done.stdout


def test_two_runs_of_a_stage_go_beside_each_other_and_both_are_judged(tmp_path: Path) -> None:
    meets = f"import pathlib, sys, time\nHERE = pathlib.Path({str(tmp_path)!r})\n" + MEETS
    (tmp_path / "test_other.py").write_text(f"{meets}\n    assert False, 'a word of the other'\n")
    done = tried(tmp_path / "test_it.py", meets, beside="test_other.py")
    assert done.returncode == 1
    assert "a word of the other" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("FAILED  ")] == [
        "FAILED  test_other.py::test_meets"
    ]


def test_only_full_runs_what_is_marked_as_full_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "@pytest.mark.full('shown elsewhere')\ndef test_dear():\n    assert False\n"
    for processes in (0, 1):
        monkeypatch.setenv("PYTEST_ADDOPTS", f"--numprocesses={processes}")
        done = tried(tmp_path / "test_it.py", body)
        assert done.returncode == 0
        assert done.stdout.partition("in full\n")[2].splitlines()[0].split()[-1] == "1", done.stdout
    assert tried(tmp_path / "test_it.py", body, "--full").returncode == 1


def test_the_time_of_what_outlives_its_parent_is_counted(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 2: pass"
    body = f"""
import subprocess, sys, time
def test_orphans():
    shell = ["sh", "-c", '"$0" -c "$1" & echo $!', sys.executable, {busy!r}]
    pid = subprocess.run(shell, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    while pathlib.Path(f"/proc/{{pid}}/exe").exists():
        time.sleep(0.01)
"""
    done = tried(tmp_path / "test_it.py", body)
    assert done.returncode == 0, done.stdout
    idle = tried(tmp_path / "test_it.py", "def test_idle():\n    pass\n")
    assert cpu(done.stdout) - cpu(idle.stdout) > 1


def cpu(output: str) -> float:
    """The CPU seconds of all stages."""
    return float(next(line for line in output.splitlines() if line.startswith("all ")).split()[-1])


def test_kind_is_a_stage_of_all_tests_together_or_by_its_name() -> None:
    (kind,) = (stage for stage in table.STAGES if stage.name == "kind")
    lines = ([], ["unit"], ["--full"], ["kind"])
    assert [words for words in lines if stages._choice(words).has(kind)] == [["--full"], ["kind"]]


def test_a_test_that_is_listed_as_flaky_twice_is_not_run_again(tmp_path: Path) -> None:
    for listed, code in ((0, 0), (1, 0), (2, 1)):
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / "flaky.md").write_text("| 2026-01-01 | `test_it.py::test_once` | |\n" * listed)
        done = tried(tmp_path / "test_it.py", f"def test_once():\n    assert seen('once {listed}')\n")
        assert done.returncode == code, done.stdout
        row = re.search(r"^\| 20\S+ \| `test_it.py::test_once` \| not known yet \|$", done.stdout, re.MULTILINE)
        assert bool(row) is (code == 0), "a row for the list"


def test_what_each_folder_and_the_slowest_tests_take_is_told_and_written_down(tmp_path: Path) -> None:
    body = "import time\n@pytest.mark.skip\ndef test_left_out():\n    pass\ndef test_slow():\n    time.sleep(1)\n"
    body += "@pytest.fixture\ndef made():\n    while time.process_time() < 2: pass\ndef test_busy(made):\n    pass\n"
    done = tried(tmp_path / "test_it.py", body)
    folder, slowest, next_one, *_ = (line.split() for line in done.stdout.partition("in full\n")[2].splitlines())
    assert folder[:2] == ["3", "1"], done.stdout
    assert slowest == ["slowest"]
    assert float(next_one[0]) > 0.9
    costs = [json.loads(line) for line in (tmp_path / ".tests_cache" / "costs.json").read_text().splitlines()]
    assert {cost["test"].partition("::")[2]: cost["skipped"] for cost in costs} == {
        "test_left_out": True,
        "test_slow": False,
        "test_busy": False,
    }
    busy = next(cost for cost in costs if cost["test"].endswith("busy"))
    assert busy["cpu"] > 0.5, "with what it needs"


def test_the_same_seed_is_printed_and_taken_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEST_SEED", "17")
    assert "TEST_SEED=17" in tried(tmp_path / "test_it.py", "def test_it():\n    pass\n").stdout
    monkeypatch.delenv("TEST_SEED")
    seeds = [tried(tmp_path / "test_it.py", "").stdout.partition("TEST_SEED=")[2] for _ in range(2)]
    assert seeds[0] != seeds[1]


def test_near_a_change_of_the_engine_are_a_few_files_and_the_tests_that_change_none_with_real_nodes() -> None:
    files = {"operator/ddpjob_operator/engine/decide.py", "tests/training/test_order.py", "tests/e2e/test_cli.py"}
    near = changes.near(files)
    assert near > {*table.NEAR["tests/cluster"], "tests/training/test_order.py"}
    assert not [test for test in near if test.startswith(table.NODES) or not Path(test).exists()]
    choice = stages.Choice((), full=False, rooms=near, changed=files)
    runs = [run for stage in table.STAGES for run in choice.runs(stage)]
    assert [word for run in runs for word in run if word == "tests/training"] == [], "a part of a folder"
    assert near == {word for run in runs for word in run} & near


def test_everything_near_something_exists() -> None:
    assert [test for tests in table.NEAR.values() for test in tests if not Path(test).exists()] == []
    rooms = {room for rooms in table.ROOMS.values() for room in rooms}
    assert table.NEAR.keys() <= rooms
