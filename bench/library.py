"""Measures what `ddpjob.Training` costs a script: in each step, compared with a step without it, and in each save.

All loops run in one process, and take turns of some steps each. The one with the library reports its progress as in
a job, and checks in each step whether a save is due. The stall is compared with a save for which training waits.
Steps and saves are also compared with those of Lightning and Accelerate.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import count as count_up
from pathlib import Path

import ddpjob
import torch
from accelerate import Accelerator
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.encoding import encode
from ddpjob_rank.environment import Env
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.reporting.heartbeat import EMPTY
from torch import nn
from torch.optim import Adam, Optimizer
from torch.utils.data import DataLoader

from bench import loops, pairs
from bench.loops import Script, Turn
from bench.table import Row

STEP_MILLISECONDS = 10
"""The time of a step, roughly. The batch size is chosen so that it takes as long on this machine."""
STEPS = 10
"""The number of steps of a turn. Turns are short, because the machine's pace changes within seconds."""
TURNS = 60
"""The pairs of such turns that take as long as a pair of the other parts."""
MOST, HIGHEST = 1.01, 1.02
"""The limits for the median ratio, and for the upper end of its interval."""
MOST_OF_ANOTHER = 1.02
"""The limit for a step or a save, relative to that of another framework."""
MOST_OF_A_SAVE = 0.10
"""The limit for the stall of a save, relative to a save for which training waits."""
STATE_BYTES_PER_WEIGHT = 3 * 4
"""The bytes of a weight and of its two moments in Adam."""


def rows(count: int) -> list[Row]:
    """Rows for the wall time and the CPU time of a step, and for its wall time beside that of other frameworks.

    Each row is from `count` pairs of turns.
    """
    torch.set_num_threads(1)
    batch = _batch_size()
    others: dict[str, Turn] = {  # Created before the heartbeat: in a job, Lightning would use our callbacks.
        "Lightning": loops.LightningTurns(Script(batch)),
        "Accelerate": loops.turns(loops.with_accelerate(Script(batch))),
    }
    plain = loops.turns(loops.plain(Script(batch)))
    with tempfile.TemporaryDirectory(prefix="bench-library-") as name, Path(os.devnull).open("w") as nowhere:
        heartbeat = Path(name) / "heartbeat"
        heartbeat.write_bytes(EMPTY)
        os.environ[Env.HEARTBEAT] = str(heartbeat)
        ours = loops.turns(loops.with_library(Script(batch), Path(name) / "checkpoints"))
        with redirect_stdout(nowhere):
            for loop in (ours, plain, *others.values()):
                turn(loop)  # Not counted, because the first turn includes one-time costs.
            found, *beside = (
                pairs.in_turn(count, lambda: turn(ours), lambda loop=loop: turn(loop))
                for loop in (plain, *others.values())
            )
    what = "a script's step with `ddpjob.Training` beside"
    return [
        _judged(f"{what} without: {unit}", [(mine[place], other[place]) for mine, other in found])
        for place, unit in enumerate(("time", "CPU time"))
    ] + [
        pairs.ratio(
            f"{what} one with {name}: time",
            [(mine[0], other[0]) for mine, other in measured],
            "ms",
            most=MOST_OF_ANOTHER,
        )
        for name, measured in zip(others, beside, strict=True)
    ]


def stalls(directory: Path, count: int, *, megabytes: float) -> list[Row]:
    """Rows for the stall of a save of that size, each from `count` pairs of saves."""
    weights = megabytes * 1_000_000 / STATE_BYTES_PER_WEIGHT
    model = nn.Linear(round(weights**0.5), round(weights**0.5))
    optimizer = Adam(model.parameters())
    model(torch.rand(1, model.in_features)).sum().backward()
    optimizer.step()
    training = ddpjob.Training(
        model=model, optimizer=optimizer, loader=range(10**9), directory=directory / "beside", every_steps=1, keep=2
    )

    def beside() -> float:
        training.step()
        began = time.perf_counter()
        next(batches)
        seconds = time.perf_counter() - began
        training._saver.finish()
        return seconds

    what = f"a save of {megabytes:g} MB with `ddpjob.Training`: its stall beside"
    found = []
    with Path(os.devnull).open("w") as nowhere:
        for _ in training.epochs(1):
            batches = training.batches()
            next(batches)
            with redirect_stdout(nowhere):
                beside()  # Not counted, because the first save includes one-time costs.
                for name, save, most in (
                    ("a save for which training waits", _waiting(model, optimizer, directory), MOST_OF_A_SAVE),
                    ("`save_checkpoint` of Lightning", _lightning(model, optimizer, directory), MOST_OF_ANOTHER),
                    ("`save_state` of Accelerate", _accelerate(model, optimizer, directory), MOST_OF_ANOTHER),
                ):
                    _timed(save)
                    measured = pairs.in_turn(count, beside, lambda save=save: _timed(save))
                    milliseconds = [(ours * 1000, theirs * 1000) for ours, theirs in measured]
                    found.append(pairs.ratio(f"{what} {name}", milliseconds, "ms", most=most))
            break
    return found


def turn(loop: Turn) -> tuple[float, float]:
    """Makes some steps. Returns the milliseconds, and the CPU milliseconds, of one step."""
    began, began_cpu = time.perf_counter(), time.process_time()
    loop(STEPS)
    return (time.perf_counter() - began) / STEPS * 1000, (time.process_time() - began_cpu) / STEPS * 1000


def _batch_size() -> int:
    """The batch size with which a step takes about STEP_MILLISECONDS."""
    batch = 64
    for _ in range(3):
        loop = loops.turns(loops.plain(Script(batch)))
        turn(loop)
        milliseconds = statistics.median(turn(loop)[0] for _ in range(5))
        batch = max(1, round(batch * STEP_MILLISECONDS / milliseconds))
    return batch


def _waiting(model: nn.Module, optimizer: Optimizer, directory: Path) -> Callable[[], object]:
    """A durable save like that of the library, for which training waits."""
    storage, steps = CheckpointDirectory(directory / "waiting", keep=2), count_up()

    def save() -> None:
        state = {"shared": {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ranks": [{}]}
        storage.write(Manifest(next(steps), 1, 0, 1, 1, "", (0,)), lambda file: encode(state, file))

    return save


def _lightning(model: nn.Linear, optimizer: Optimizer, directory: Path) -> Callable[[], object]:
    trainer = loops.lightning_trainer(max_steps=1)
    batch = torch.rand(1, model.in_features), torch.rand(1, model.out_features)
    trainer.fit(loops.Module(model, optimizer), DataLoader([batch], batch_size=None))
    return lambda: trainer.save_checkpoint(directory / "lightning.ckpt")


def _accelerate(model: nn.Module, optimizer: Optimizer, directory: Path) -> Callable[[], object]:
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model, optimizer)
    return lambda: accelerator.save_state(str(directory / "accelerate"))


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _judged(what: str, milliseconds: list[tuple[float, float]]) -> Row:
    row = pairs.ratio(what, milliseconds, "ms", most=MOST)
    _, highest = pairs.interval([mine / other for mine, other in milliseconds])
    return replace(row, target=f"{row.target}, interval up to {HIGHEST}", met=row.met and highest <= HIGHEST)
