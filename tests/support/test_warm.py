"""A process forked from a template runs, ends and dies like a process that is started.

The module is timeit, which runs any line of Python.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from .waiting import wait_for
from .warm import Fork, Template

FOR_LONG = "import time; time.sleep(60)"


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with closing(Template("timeit")) as template:
        yield template


def runs(template: Template, line: str, log: Path, **environment: str) -> Fork:
    return template.fork(["timeit", "-n1", "-r1", "-s", line], environment, log)


def test_a_fork_has_its_own_environment_and_output(template: Template, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    line = "import os; print(sorted(os.environ.items()))"
    assert runs(template, line, log, IT="so").wait(20) == 0
    assert log.read_text().startswith("before\n[('IT', 'so')]\n")


def test_the_exit_code_of_a_fork_is_learned(template: Template, tmp_path: Path) -> None:
    fork = runs(template, "1 / 0", tmp_path / "log")
    assert (fork.wait(20), fork.poll()) == (1, 1)
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()


def test_a_fork_is_killed_like_any_process(template: Template, tmp_path: Path) -> None:
    fork = runs(template, FOR_LONG, tmp_path / "log")
    assert fork.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.1)
    fork.kill()
    assert fork.wait(20) == -signal.SIGKILL
    assert not psutil.pid_exists(fork.pid)


def test_forks_die_with_the_tests(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from tests.support.warm import Template
print(Template("timeit").fork(["timeit", "-s", {FOR_LONG!r}], {{}}, Path({str(tmp_path / "log")!r})).pid, flush=True)
os.kill(os.getpid(), {signal.SIGKILL})
"""
    tests = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    wait_for("the fork to die", lambda: not psutil.pid_exists(int(tests.stdout)), 10)


def test_what_a_forked_command_prints_is_read_to_its_end_and_it_works_where_it_is_told(
    template: Template, tmp_path: Path
) -> None:
    line = "import os, sys; print(os.getcwd(), flush=True); print('late', file=sys.stderr); os._exit(7)"
    command = template.pipe(["timeit", "-n1", "-r1", "-s", line], {}, tmp_path)
    assert command.communicate(20) == (f"{tmp_path}\nlate\n", None)
    assert command.returncode == 7


def test_a_forked_command_that_goes_on_printing_is_not_waited_for_longer_than_asked(
    template: Template, tmp_path: Path
) -> None:
    command = template.pipe(["timeit", "-n1", "-r1", "-s", FOR_LONG], {}, tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        command.communicate(0.1)
    command.terminate()
    assert command.wait(20) == -signal.SIGTERM
    command.stdout.close()
