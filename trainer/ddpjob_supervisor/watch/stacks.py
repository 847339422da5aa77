"""Collects the evidence of a stall: what each rank of this node is doing, for the log and for a file."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
from ddpjob_rank.reporting import heartbeat

from . import evidence, frames, ras
from .asking import Answer, ask_for_stacks, ask_rank
from .blame import HELD, STATES, Observation
from .procfs import Process, descendants

CHILDREN_SHOWN = 8
CHILDREN_SECONDS = 0.25
LOG_CHARACTERS = 64 << 10
FRAMES = 12
"""How many frames of a stack are passed on. The log and the file contain all frames."""


async def collect(pid: int, rank: int, beats: Path, attempt: int) -> Observation:
    """Finds out what a rank is doing. Writes the most useful part to stderr, and everything to a file.

    Takes at most 1.5 seconds, whatever the rank does.

    Args:
        pid: The process ID of the rank.
        rank: The rank's RANK.
        beats: The rank's heartbeat file.
        attempt: The number of the present attempt.

    Raises:
        msgspec.ValidationError: The rank's answer is not valid.
    """
    present, answer = await _asked(pid, beats)
    observation = _observation(rank, present, answer, beats)
    children = await _children(pid, beats)
    head = [*_head(observation, present, answer)]
    _log(_story(*head, frames.without_ours(answer.stacks), *children, *_collectives(answer, done=False)))
    story = _story(*head, frames.main_first(answer.stacks), *children, *_collectives(answer))
    await evidence.keep(f"{story}\n", attempt, rank)
    return observation


async def observe(pid: int, rank: int, beats: Path) -> Observation:
    """Finds out what a rank is doing, as `collect` does, but writes nothing. Takes at most a second.

    Raises:
        msgspec.ValidationError: The rank's answer is not valid.
    """
    return _observation(rank, *await _asked(pid, beats), beats)


async def _asked(pid: int, beats: Path) -> tuple[Process, Answer]:
    present = Process.of(pid)
    return present, Answer(asked=False) if present.state in HELD else await ask_rank(pid, beats)


async def collect_from_ras(address: str, attempt: int) -> None:
    """Writes the report of NCCL's RAS on all ranks to stderr and a file, if RAS answers. Takes at most 4 seconds."""
    if report := await ras.ask(address):
        _log(f"NCCL's RAS reports on all ranks:\n{report}")
        await evidence.keep_ras(report, attempt)


def _story(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _observation(rank: int, present: Process, answer: Answer, beats: Path) -> Observation:
    stack = frames.main_thread(answer.stacks)
    record = _record(beats)
    observation = Observation(
        rank=rank,
        state=present.state,
        silent=answer.asked and not answer.stacks and not answer.told,
        where=frames.location(stack),
        communicates=frames.communicates(stack) or answer.unfinished is not None,
        collective=answer.unfinished,
        sequences=answer.sequences,
        step=int(record.step) if record and record.step == record.step else None,
        counted=record is not None and record.counted in {heartbeat.COUNTED, heartbeat.COUNTED_ANEW},
        activity=record.activity if record else None,
        raised=answer.raised,
        fallen=answer.fallen,
        expects=answer.expects,
        stack=tuple(str(frame) for frame in frames.without_start(stack)[:FRAMES]),
    )
    # The rank's answer comes from a file that the rank writes, so its types must be checked.
    return msgspec.convert(msgspec.to_builtins(observation), Observation)


def _record(beats: Path) -> heartbeat.Record | None:
    with contextlib.suppress(OSError):
        return heartbeat.decode(beats.read_bytes())
    return None


async def _children(pid: int, beats: Path) -> list[str]:
    """What the child processes of the rank are doing. Forked children can be asked for their stacks."""
    lines = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CHILDREN_SECONDS):
            for child in islice(descendants(pid), CHILDREN_SHOWN):
                present = Process.of(child)
                lines.append(f"child process {child} ({present.name}): {_state(present)}")
                if present.state not in HELD:
                    lines.append((await ask_for_stacks(child, beats)).stacks)
    return lines


def _head(observation: Observation, present: Process, answer: Answer) -> Iterator[str]:
    step = "no step reported" if observation.step is None else f"step {observation.step} finished"
    doing = f", {observation.activity}" if observation.activity else ""
    yield f"rank {observation.rank}: process {present.pid}, {_state(present)}; {step}{doing}"
    if observation.sequences:
        begun = ", ".join(f"{number} of group {group}" for group, number in observation.sequences.items())
        waits = f"; it waits in {observation.collective}" if observation.collective else ""
        yield f"collectives begun: {begun}{waits}"
    yield from (
        f"PyTorch does not report its collectives: {part['error']}" for part in answer.told if "error" in part
    )
    if not answer.asked and present.state not in HELD:
        yield "it cannot be asked for its stack"


def _collectives(answer: Answer, *, done: bool = True) -> Iterator[str]:
    """The last entries of each flight recorder. Without `done`, only the unfinished collectives."""
    for part in answer.told:
        if entries := [op for op in part.get("collectives", ()) if done or op["state"] != "done"]:
            which = f"the last {len(entries)}" if done else "only the unfinished ones"
            yield f"collectives of {part['backend']} in its flight recorder, {which}:"
            for op in entries:
                yield f"  group {op['group']}, number {op['number']}: {op['name']} {op['sizes']}, {op['state']}"


def _state(present: Process) -> str:
    waits = f", in {present.waits_in}" if present.waits_in else ""
    return f"state {present.state} ({STATES.get(present.state, 'unknown')}){waits}"


def _log(story: str) -> None:
    rest = len(story) - LOG_CHARACTERS
    with contextlib.suppress(OSError):  # If nobody reads stderr any more, the file is enough.
        sys.stderr.write(f"{story}\n" if rest <= 0 else f"{story[:LOG_CHARACTERS]}\n({rest} more characters)\n")
        sys.stderr.flush()
