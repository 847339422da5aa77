"""The plan: what is tried, how, and what has to come of it."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ddpjob_rank.console import counted

from . import scripts
from .running import Machine, Run

LONGEST_SECONDS = 450.0
"""Of all of it: a trial that might go on beyond that is not begun."""

FIGURE = re.compile(r"figure: (.+)")
ASKING = re.compile(r"asks for ([\d.]+) ms")
PACE = re.compile(r"^finished .*\bsamples_per_second=([\d.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to try: runs, and then says what was seen, or what is wrong in an AssertionError."""

    what: str
    play: Callable[[Machine, Path], str]
    processes: int = 1
    """As many GPUs are needed."""
    gpus_only: bool = False
    seconds: float = 60.0
    """It has failed if it takes longer."""


def _trains(*flags: str, workload: str = "convnet", processes: int | None = None) -> Callable[[Machine, Path], str]:
    """Trains with these flags, handwritten digits unless it says otherwise; tells the pace."""

    def play(machine: Machine, directory: Path) -> str:
        count = machine.processes if processes is None else processes
        run = machine.trains(directory, "--workload", workload, "--max-steps", "60", *flags, processes=count)
        assert run.code == 0, run.output
        paces = PACE.findall(run.output)
        return f"{float(paces[-1]):,.0f} samples/s" if paces else "trains"

    return play


def _group(machine: Machine, directory: Path) -> str:
    run = machine.supervises(directory, scripts.GROUP)
    assert run.code == 0, run.output
    return _figures(run)


def _kill(machine: Machine, directory: Path) -> str:
    run = machine.supervises(directory, scripts.KILL)
    assert run.code == 0, run.output
    assert "attempt 2 begins in place" in run.output, run.output
    return _figures(run)


def _hang(machine: Machine, directory: Path) -> str:
    # Gloo has no watchdog: there the supervisor itself finds the stall.
    env = {"DDPJOB_STALL_TIMEOUT_SECONDS": "1000" if machine.gpus else "3"}
    run = machine.supervises(directory, scripts.HANG, **env)
    assert run.code == 0, run.output
    last = machine.processes - 1
    assert f"stalled: rank {last} did not enter the collective: it is in trouble (train.py:" in run.output, run.output
    dumps = len([*directory.rglob("trace-*")])
    assert dumps or not machine.gpus, run.output
    return f"rank {last} named, {dumps} dumps of the flight recorder"


def _ask(machine: Machine, directory: Path) -> str:
    """Where no rank has set a device: each asks on its own GPU, and all stop one step after the signal."""
    run = machine.supervises(directory, scripts.ASK, DDPJOB_IN_PLACE_RESTARTS="0")
    seconds = [float(ms) / 1e3 for ms in ASKING.findall(run.output)]
    assert len(seconds) == machine.processes == run.output.count("stops after step 21,"), run.output
    assert not machine.gpus or max(seconds) < 0.02, run.output
    return f"all stop after one step; at most {max(seconds) * 1e3:.1f} ms for a call"


def _resume(machine: Machine, directory: Path) -> str:
    """Once in one go, and its second half once more, from the checkpoint at half the way: the same bits."""
    job = ["--deterministic", "--max-steps", "30", "--checkpoint-every-steps", "15", "--checkpoint-dir"]
    whole, half = directory / "whole", directory / "half"
    for checkpoints in (whole, half):
        run = machine.trains(directory, "--workload", "convnet", *job, str(checkpoints))
        assert run.code == 0, run.output
        if checkpoints == whole:
            shutil.copytree(whole, half)
            shutil.rmtree(max(half.glob("step-*")))
    assert "half/step-00000015" in run.output, f"it did not begin at half the way:\n{run.output}"
    return _compared(whole, half)


def _compared(one: Path, other: Path) -> str:
    """The weights of two newest checkpoints."""
    import torch  # noqa: PLC0415  It takes seconds, and whoever only asks for the plan does not need it.

    newest = (max(checkpoints.glob("step-*")) / "state.pt" for checkpoints in (one, other))
    ours, theirs = (torch.load(file, weights_only=True, map_location="cpu")["shared"]["model"] for file in newest)
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert not different, f"differ: {', '.join(different)}"
    return f"{len(ours)} tensors equal in every bit"


def _resume_library(machine: Machine, directory: Path) -> str:
    """As `_resume`, with a script: it saves after each epoch."""
    whole, half = directory / "whole", directory / "half"
    for checkpoints in (whole, half):
        env = {"GPU_SAVED": str(checkpoints), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        run = machine.supervises(directory, scripts.LIBRARY_RESUME, **env)
        assert run.code == 0, run.output
        if checkpoints == whole:
            shutil.copytree(whole, half)
            for newer in sorted(half.glob("step-*"))[-2:]:
                shutil.rmtree(newer)
    assert "resumed" in run.output, f"it did not resume:\n{run.output}"
    return _compared(whole, half)


def _alone(script: str) -> Callable[[Machine, Path], str]:
    """Runs a script in one process."""

    def play(machine: Machine, directory: Path) -> str:
        run = machine.runs(directory, script)
        assert run.code == 0, run.output
        return _figures(run)

    return play


def _beside_a_bare_loop(machine: Machine, directory: Path) -> str:
    """Alternating, since machines drift; once without a GPU, where it is only seen to work."""
    shares = []
    for number in range(3 if machine.gpus else 1):
        bare, ours = machine.paces(directory / str(number))
        shares.append(ours / bare)
    return f"{median(shares):.2f} of a bare loop's steps/s (median of {counted(len(shares), 'pair')})"


def _figures(run: Run) -> str:
    return "; ".join(FIGURE.findall(run.output)) or "works"


PLAN = (
    Trial("process group", _group),
    Trial("training", _trains()),
    Trial("bf16", _trains("--precision", "bf16")),
    Trial("fp16", _trains("--precision", "fp16"), gpus_only=True),
    # Without an evaluation, which is compiled anew.
    Trial("compiled", _trains("--compile", workload="tests.gpu.model:Task"), seconds=150),
    Trial("channels last", _trains("--channels-last")),
    Trial("batch normalisation over all processes", _trains("--sync-bn"), processes=2, gpus_only=True),
    Trial("loader processes and pinned memory", _trains("--workers", "2")),
    Trial("DataParallel in one process", _trains("--mode", "data-parallel", processes=1), gpus_only=True),
    Trial("a rank is killed: restart in place", _kill),
    Trial("a rank hangs: it is named", _hang, processes=2),
    Trial("stop_requested() in a script that sets no device", _ask, processes=2),
    Trial("resumed at half the way with --deterministic", _resume),
    Trial("a save beside torch.save", _alone(scripts.SAVE)),
    Trial("our loop beside a bare loop", _beside_a_bare_loop, seconds=120),
    Trial("ddpjob.Training: resumed at half the way, deterministic", _resume_library),
    Trial("ddpjob.Training: a save beside torch.save", _alone(scripts.LIBRARY_SAVE)),
    Trial("ddpjob.Training: a step beside one without it", _alone(scripts.LIBRARY_STEPS)),
)


def fitting(machine: Machine) -> Iterator[tuple[Trial, str]]:
    """The trials, each with why it is left out on this machine; empty: it is not."""
    for trial in PLAN:
        if trial.gpus_only and not machine.gpus:
            yield trial, "needs a GPU"
        elif machine.gpus and trial.processes > machine.processes:
            yield trial, f"needs {trial.processes} GPUs"
        else:
            yield trial, ""


def too_late(trial: Trial, elapsed: float) -> str:
    """Why a trial is not begun after so many seconds; empty: it is."""
    return "not run: no time left" if elapsed + trial.seconds > LONGEST_SECONDS else ""
