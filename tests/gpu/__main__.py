"""`python -m tests.gpu`: carries the plan out, and on a machine with GPUs writes docs/reference/gpu.md. Exits 1 if a
trial fails."""

import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch

from tests.pages import REFERENCE, write

from .plan import Trial, fitting, too_late
from .running import Machine, this_machine

PAGE, PART = REFERENCE / "gpu.md", "gpu"


def main() -> None:
    """Runs all trials, prints what was seen of each at once, and writes the page if a GPU has seen it."""
    machine = this_machine()
    print(f"{machine.name}; {machine.processes} processes, backend {machine.backend}, PyTorch {torch.__version__}")
    if not machine.gpus:
        print("There is no GPU: the same plan over gloo, to see that it works. Nothing is written.")
    began, failed = time.monotonic(), []
    rows: list[str] = []
    for trial, why_not in fitting(machine):
        seen = why_not or too_late(trial, time.monotonic() - began) or _tried(trial, machine.within(trial.seconds))
        print(f"{trial.what}: {seen}", flush=True)
        failed += [trial.what] if seen.startswith("FAILED") else []
        rows.append(f"| {trial.what} | {seen.splitlines()[0]} |")
    print(f"{time.monotonic() - began:.0f} s; failed: {', '.join(failed) or 'nothing'}")
    if machine.gpus:
        write(PAGE, PART, [*_page(machine, rows)])
    sys.exit(bool(failed))


def _tried(trial: Trial, machine: Machine) -> str:
    with tempfile.TemporaryDirectory(prefix="ddpjob-gpu-") as directory:
        began = time.monotonic()
        try:
            seen = trial.play(machine, Path(directory))
        except AssertionError as wrong:
            return f"FAILED\n{wrong}"
        return f"{seen} ({time.monotonic() - began:.0f} s)"


def _page(machine: Machine, rows: list[str]) -> Iterator[str]:
    made = datetime.now(UTC).date()
    yield ""
    yield f"{machine.gpus} x {machine.name}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {made}:"
    yield ""
    yield "| What | Seen |"
    yield "| --- | --- |"
    yield from rows
    yield ""


if __name__ == "__main__":
    main()
