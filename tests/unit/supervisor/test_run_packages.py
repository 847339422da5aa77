"""Packages of a program in a held gang: when they are installed anew, and what is left of an installation."""

import asyncio
import os
import sys
import tempfile
import threading
from pathlib import Path
from shutil import rmtree

import pytest
from ddpjob_supervisor.node import run_packages
from ddpjob_supervisor.node.ranks import GONE
from ddpjob_supervisor.node.run_packages import KEPT, NotInstalledError, PackageSet, RunPackages
from ddpjob_supervisor.watch.procfs import Process

from tests.support.waiting import patience, wait_for

EINOPS = PackageSet(("einops>=0.8",), "")


REPORT = '{"cause": "ConfigError", "message": "no a"}'


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code" / "pkg").mkdir(parents=True)
    (tmp_path / "code" / "other.txt").touch()
    return tmp_path / "code"


def installer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Installs by this program in place of pip."""
    monkeypatch.setattr(run_packages, "INSTALL", (sys.executable, "-c", f"import os, sys, time\n{text}"))


def test_the_order_of_packages_does_not_matter_and_what_chooses_the_index_does(code: Path) -> None:
    (code / "requirements.txt").write_text("a\n")
    both = PackageSet(("a", "b"), "")
    assert both.key(code, {"LR": "1"}) == PackageSet(("b", "a"), "").key(code, {"LR": "2"})
    others = (both, PackageSet(("a",), ""), PackageSet(("a", "b"), "requirements.txt"))
    keys = {each.key(code, {}) for each in others} | {both.key(code, {"PIP_INDEX_URL": "https://index"})}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("text", "refers"),
    [
        ("einops>=0.8\n# a comment\n--index-url https://index/simple", False),
        ("-r other.txt", True),
        ("-rother.txt", True),
        ("--constraint=other.txt", True),
        ("./pkg", True),
        ("-e .", True),
        ("-r gone.txt", False),
        ("#" * 300, False),
    ],
)
def test_a_change_of_the_code_counts_if_the_requirements_file_refers_to_a_file(
    text: str, code: Path, *, refers: bool
) -> None:
    (code / "requirements.txt").write_text(text)
    before = PackageSet((), "requirements.txt").key(code, {})
    assert (PackageSet((), "requirements.txt").key(code.rename(code.with_name("changed")), {}) != before) is refers


def test_a_set_is_installed_once_and_only_so_many_are_kept(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer(monkeypatch, "print(*sys.argv[2:])")
    before = set(Path(tempfile.gettempdir()).glob("ddpjob-packages-*"))

    async def lives() -> list[Path]:
        with RunPackages() as packages:
            found = [await packages.searched(PackageSet((name,), ""), code, {}) for name in ("a", "b", "a", "c")]
            assert (found[0] == found[2], len({*found})) == (True, 3)
            await packages.searched(EINOPS, code, {})
            places = [Path(path).parent for path in found]
            await packages.searched(PackageSet(("e",), ""), code, {"PYTHONPATH": "/own"})
            assert [place.is_dir() for place in places] == [True, False, True, True], "b was not used for longest"
            assert KEPT == 4
            assert not packages.pids
            return places

    places = asyncio.run(lives())
    assert not any(place.exists() for place in places)
    assert {*Path(tempfile.gettempdir()).glob("ddpjob-packages-*")} <= before


def test_others_are_answered_while_old_sets_are_removed(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer(monkeypatch, "")
    monkeypatch.setattr(run_packages, "KEPT", 1)
    answered = threading.Event()

    def slowly(_: Path) -> None:
        assert answered.wait(patience(30)), "nobody answers"

    monkeypatch.setattr(run_packages, "_remove", slowly)

    async def lives() -> None:
        with RunPackages() as packages:
            await packages.searched(EINOPS, code, {})
            asyncio.get_running_loop().call_later(0.01, answered.set)
            await packages.searched(PackageSet(("b",), ""), code, {})

    asyncio.run(lives())
    assert answered.is_set()


def test_packages_are_searched_after_the_users_own_directories(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer(monkeypatch, "assert os.environ['PYTHONPATH'] == f'/own{os.pathsep}{sys.argv[1]}/site'")
    with RunPackages() as packages:
        own, place = asyncio.run(packages.searched(EINOPS, code, {"PYTHONPATH": "/own"})).split(os.pathsep)
    assert (own, Path(place).name) == ("/own", "site")


@pytest.mark.parametrize(
    ("text", "message", "cause"),
    [
        (
            f"open(os.environ['DDPJOB_TERMINATION_LOG'], 'w').write({REPORT!r})\nsys.exit(2)",
            "no a",
            "ConfigError",
        ),
        ("sys.exit(3)", "cannot install packages: pip ended with exit code 3", "Application"),
        *(
            (
                f"open(os.environ['DDPJOB_TERMINATION_LOG'], 'w').write({words})\nsys.exit(3)",
                "cannot install packages: pip ended with exit code 3",
                "Application",
            )
            for words in ("'[]'", "'{}'", "'[' * 1000", "'[' * 100_000")
        ),
        ("os.kill(os.getpid(), 9)", "cannot install packages: pip was killed by signal 9", "Application"),
    ],
    ids=["it says why", "it says nothing", *["it says what nobody understands"] * 4, "killed"],
)
def test_why_packages_are_not_there_is_told_and_they_are_installed_again(
    text: str, message: str, cause: str, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunPackages() as packages:
        installer(monkeypatch, text)
        with pytest.raises(NotInstalledError) as failed:
            asyncio.run(packages.searched(EINOPS, code, {}))
        assert (str(failed.value), failed.value.cause) == (message, cause)
        installer(monkeypatch, "")
        place = Path(asyncio.run(packages.searched(EINOPS, code, {}))).parent
        wait_for("the failed one to be removed", lambda: [*place.parent.iterdir()] == [place], 10)


def test_packages_that_a_program_has_removed_are_installed_again(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has cleared the directory of temporary files, for example."""
    installer(monkeypatch, "")
    with RunPackages() as packages:
        place = Path(asyncio.run(packages.searched(EINOPS, code, {}))).parent
        rmtree(place.parent)
        assert Path(asyncio.run(packages.searched(EINOPS, code, {}))).parent.is_dir()


def test_a_node_that_can_have_no_more_processes_says_so(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_packages, "INSTALL", (str(code / "gone"),))
    with RunPackages() as packages:
        with pytest.raises(NotInstalledError, match="cannot install packages: No such file or directory"):
            asyncio.run(packages.searched(EINOPS, code, {}))
        assert not packages.pids


def test_pip_does_not_outlive_an_installation_that_was_killed(
    code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    killed = f"if child := os.fork():\n open({str(pid)!r}, 'w').write(str(child))\n os.kill(os.getpid(), 9)\n"
    installer(monkeypatch, f"{killed}time.sleep(1000)")
    with RunPackages() as packages, pytest.raises(NotInstalledError, match="killed by signal 9"):
        asyncio.run(packages.searched(EINOPS, code, {}))
    wait_for("it to end", lambda: Process.of(int(pid.read_text())).state in GONE, 10)


def test_a_cancelled_installation_leaves_no_process_and_does_not_count(
    code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    installer(monkeypatch, f"open({str(pids)!r}, 'a').write(f'{{os.fork()}} {{os.getpid()}} ')\ntime.sleep(1000)")

    async def lives(packages: RunPackages) -> None:
        task = asyncio.create_task(packages.searched(EINOPS, code, {}))
        async with asyncio.timeout(patience(30)):
            while not pids.exists() or len(pids.read_text().split()) < 4:  # noqa: ASYNC110  (another process writes)
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    with RunPackages() as packages:
        asyncio.run(lives(packages))
        running = [int(pid) for pid in pids.read_text().split() if pid != "0"]
        wait_for("all to end", lambda: not any(Process.of(pid).state not in GONE for pid in running), 10)
        installer(monkeypatch, "")
        asyncio.run(packages.searched(EINOPS, code, {}))
