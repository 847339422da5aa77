"""Starts operators as processes beside a plant; stops, kills, freezes and wakes them."""

import re
import signal
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType

from tests.plant import Plant
from tests.plant.processes import Program
from tests.support.waiting import patience
from tests.support.warm import fork_operator

PROGRAM = Path(sys.executable).with_name("ddpjob-operator")
SERVING = re.compile(r"on port (\d+), probes on (\d+)")
LAST_LINES = 20

_numbers = count(1)


@dataclass
class Operator:
    """A replica of the operator."""

    plant: Plant
    program: Program

    @property
    def log(self) -> str:
        """The operator's whole log."""
        return self.program.log.read_text()

    @property
    def ports(self) -> tuple[int, int] | None:
        """The port for all requests, and the port for probes; None if the operator does not listen yet."""
        found = SERVING.search(self.log)
        return (int(found[1]), int(found[2])) if found else None

    def get(self, path: str, *, probe: bool = False, **headers: str) -> tuple[int, str]:
        """The HTTP status and the text of one of the operator's pages.

        The status is 0 if the operator does not answer.
        """
        if self.ports is None:
            return 0, "not serving yet"
        asked = urllib.request.Request(f"http://127.0.0.1:{self.ports[probe]}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """The value of a metric. `name` includes the labels in the form in which the page shows them."""
        _, page = self.get("/metrics")
        found = re.search(rf"^{re.escape(name)} (.*)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def wait_for(self, words: str) -> None:
        """Waits until the operator's log contains these words."""
        self.plant.wait(f"{self.program.name} to say {words!r}", lambda: words in self.log, seconds=60)

    def ready(self) -> bool:
        """Whether the operator reports that it is ready."""
        return self.get("/readyz")[0] == 200

    def kill(self) -> None:
        """Kills the operator, as `kill -9` does."""
        self.program.kill()
        self._forget()

    def stop(self) -> int:
        """Sends SIGTERM, and waits until the operator has ended. Returns its exit code."""
        self.program.process.send_signal(signal.SIGTERM)
        code = self.program.process.wait(timeout=patience(60))
        self._forget()
        return code

    def ended(self) -> int:
        """Waits until the operator has ended without a signal. Returns its exit code."""
        self._forget()
        return self.program.process.wait(timeout=patience(60))

    def freeze(self) -> None:
        """Sends SIGSTOP."""
        self.program.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Sends SIGCONT."""
        self.program.process.send_signal(signal.SIGCONT)

    def _forget(self) -> None:
        self.plant.programs.running.pop(self.program.name, None)


@contextmanager
def an_operator(
    plant: Plant,
    *flags: str,
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    until_ready: bool = True,
    forked: bool = False,
    program: Path = PROGRAM,
) -> Iterator[Operator]:
    """Starts a replica beside a plant, and ends it when the block ends.

    environment  more environment variables
    forked       whether to fork it from a process that has imported it, which saves a third of a second of a core
    program      the program to run, unless it is forked
    """
    name = f"operator-{next(_numbers)}"
    variables = {"KUBECONFIG": str(kubeconfig or plant.kubeconfig), **environment}
    flags = ("--port=0", "--probe-port=0", "--log-format=text", "--clock-settling-seconds=1", *flags)
    if forked:
        process = fork_operator(plant.programs, name, variables, *flags)
    else:
        settings = (f"{variable}={value}" for variable, value in variables.items())
        process = plant.programs.start(name, "env", *settings, program, *flags)
    operator = Operator(plant, process)
    try:
        if until_ready:
            plant.wait("the operator", operator.ready)
        yield operator
    except BaseException:
        # The plant deletes its logs when it ends, but pytest shows what a failed test has printed.
        print(f"The end of what {name} said:", *operator.log.splitlines()[-LAST_LINES:], sep="\n  ")
        raise
    finally:
        operator.wake()
        operator.kill()
