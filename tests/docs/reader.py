"""A reader who does what a page says, in a directory that looks like a clone of the project, or in one of his own."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.docs.pages import AS_PRINTED, CTRL_C, FIRST_TERMINAL, HERE, PAGES, ROOT, Block, blocks, pattern, plain
from tests.support.ports import hold_port
from tests.support.zygotes import forked_zygotes

DEADLINE_SECONDS = 480.0
OF_THE_CLONE = ("Makefile", "pyproject.toml", "requirements", ".venv", "deploy", "operator", "trainer", "docs")
NOT_A_READERS = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DDPJOB_RUN_DIR", "KUBECONFIG", "COLUMNS", "FORCE_COLOR")
"""Variables that the test's environment may have."""
INTERRUPTED = 130
USUAL_PORT = re.compile(r"ddpjob-train (?=.*--procs-per-node)(?!.*--master-port)")
"""Ranks that meet at the usual port, or end if somebody's run has it: they get another one."""


@dataclass
class Terminal:
    """A shell in the page's directory that runs one block of commands, and what it has printed."""

    process: subprocess.Popen[bytes]
    screen: Path
    interrupted: bool = False
    _watched: int = 0

    @property
    def output(self) -> str:
        """All that was printed so far."""
        return plain(self.screen.read_text(encoding="utf-8", errors="replace"))

    def interrupt(self) -> None:
        """Presses Ctrl-C."""
        self.interrupted = True
        os.killpg(self.process.pid, signal.SIGINT)

    def watch(self, shown: str) -> None:
        """Waits until what is shown stands on the screen, below what was waited for before."""
        end = time.monotonic() + DEADLINE_SECONDS
        while True:
            over = self.process.poll() is not None
            if match := pattern(shown).search(self.output, self._watched):
                self._watched = match.end()
                return
            assert not over, f"ended without it:\n{shown}\n--- but with\n{self.output}"
            assert time.monotonic() < end, f"waited {DEADLINE_SECONDS:.0f} s for\n{shown}\n--- in\n{self.output}"
            time.sleep(0.05)

    def finish(self) -> None:
        """Waits for the end, which must be a good one."""
        try:
            code = self.process.wait(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"ran for more than {DEADLINE_SECONDS:.0f} s:\n{self.output}") from None
        assert code == (INTERRUPTED if self.interrupted else 0), f"ended with {code}:\n{self.output}"


def read(name: str, reader: "Reader") -> None:
    """Has a page read from top to bottom; fails the test at the block that is not true."""
    try:
        for block in blocks(PAGES[name]):
            try:
                reader.take(block)
            except AssertionError as error:
                pytest.fail(f"{name}, line {block.line}: {error}", pytrace=False)
        reader.finish()
    finally:
        reader.leave()


@dataclass
class Reader:
    """Carries out the blocks of one page."""

    directory: Path
    """Where the reader is; `cd` changes it."""
    where: str = HERE
    """Of the page's commands, those are run that can be run there."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables for the commands."""
    has: tuple[str, ...] = OF_THE_CLONE
    """What of the clone is in the directory."""
    _terminals: list[Terminal] = field(default_factory=list)
    _first: Terminal | None = None
    _shown: str = ""
    """All that the page has shown of this place so far."""
    _output: str | None = None
    """What the last commands printed; None if they were not run."""

    def __post_init__(self) -> None:
        self._desk = self.directory.parent
        self._went = self._desk / "went"
        self.directory.mkdir()
        for name in self.has:
            (self.directory / name).symlink_to(ROOT / name)

    def take(self, block: Block) -> None:
        """Does what a block says, or compares what it shows."""
        if block.title:
            (self.directory / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            self._type(block)
        elif block.language == "text" and block.terminal.startswith(FIRST_TERMINAL):
            if self.where == block.where:
                self._watch(block)
        elif block.language == "text" and self._output is not None:
            assert pattern(block.text).fullmatch(self._output), f"shown:\n{block.text}\n--- printed:\n{self._output}"

    def finish(self) -> None:
        """Waits for all that was left running."""
        if self._first:
            self._first.finish()

    def leave(self) -> None:
        """Stops whatever still runs."""
        for terminal in self._terminals:
            if terminal.process.poll() is None:
                terminal.interrupt()
                terminal.process.wait(timeout=DEADLINE_SECONDS)

    def _type(self, block: Block) -> None:
        self._output = None
        if not block.runs(self.where):
            return
        if block.terminal == CTRL_C:
            self._interrupt()
            self.finish()
        if block.terminal == FIRST_TERMINAL:
            self.finish()
            self._first = self._open(block.text)
            return
        port = {"MASTER_PORT": str(hold_port())} if USUAL_PORT.search(block.text) else {}
        terminal = self._open(f"trap 'pwd >{self._went}' EXIT\n{self._as_printed(block)}", port)
        terminal.finish()
        self.directory = Path(self._went.read_text(encoding="utf-8").rstrip("\n"))
        self._output = terminal.output

    def _as_printed(self, block: Block) -> str:
        """The block's commands, with the number that was printed where the page shows another one."""
        if not block.terminal.endswith(AS_PRINTED):
            return block.text
        number = block.terminal.removesuffix(AS_PRINTED)
        before, after = next(line.split(number) for line in self._shown.splitlines() if number in line)
        there = f"{pattern(before).pattern}([0-9]+){pattern(after).pattern}"
        printed = re.findall(there, "\n".join(terminal.output for terminal in self._terminals))
        assert printed, f"no number was printed where {number} is shown"
        return block.text.replace(number, printed[-1])

    def _watch(self, block: Block) -> None:
        if block.terminal == CTRL_C:
            self._interrupt()
        assert self._first, "nothing was started in the first terminal"
        self._shown += block.text
        self._first.watch(block.text)

    def _interrupt(self) -> None:
        assert self._first, "nothing was started in the first terminal"
        self._first.interrupt()

    def _open(self, commands: str, variables: Mapping[str, str] = MappingProxyType({})) -> Terminal:
        screen = self._desk / f"terminal-{len(self._terminals)}"
        environment = {name: value for name, value in os.environ.items() if name not in NOT_A_READERS}
        with screen.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", commands],
                cwd=self.directory,
                env=environment
                | {"PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
                | {"XDG_STATE_HOME": str(self._desk / "state")}
                | forked_zygotes()
                | self.environment
                | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._terminals.append(Terminal(process, screen))
        return self._terminals[-1]
