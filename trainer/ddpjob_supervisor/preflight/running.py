"""The fast preflight of a node: checks the node while the zygote imports, and returns findings."""

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ddpjob_rank.environment import NCCL, Env
from ddpjob_rank.machine.storage import directory_of
from ddpjob_rank.running.program import Program

from ddpjob_supervisor.node.ranks import Launch
from ddpjob_supervisor.node.starters import Starter
from ddpjob_supervisor.watch import nvidia_driver
from ddpjob_supervisor.watch.threads import in_thread

from .facts import SHARED_MEMORY, inspect_machine
from .fast import check_machine
from .findings import Finding, Level
from .gpus import VisibleGpus, check_gpus, check_health
from .names import check_name

COLLECTIVE = Program(module=True, name="ddpjob_preflight.collective")
"""The program that a gang's ranks run to test machines and network together, as the second part of a full
preflight."""

COUNTING = "ddpjob_preflight.counting"

LOOK_SECONDS = 30.0
"""A file system that takes longer than this to answer is useless for checkpoints."""

GPU_SECONDS = 60.0
"""How long the import of torch and the start of the driver may take together."""


async def preflight(
    env: Mapping[str, str], starter: Starter, host_name: str | None, resolving_seconds: float
) -> list[Finding]:
    """Tests this node. `resolving_seconds` is how long to wait until the node's own name resolves.

    `env` is the environment of the node's supervisor.

    Raises:
        StartError: No process could be started to count the GPUs.
    """
    found = await asyncio.gather(
        _machine(env),
        check_name(host_name, resolving_seconds) if host_name else _nothing(),
        *([_health(env), _count_gpus(env, starter)] if env.get(Env.BACKEND) == NCCL else []),
    )
    return [finding for findings in found for finding in findings]


async def _nothing() -> list[Finding]:
    return []


async def _machine(env: Mapping[str, str]) -> list[Finding]:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return check_machine(env, await in_thread(inspect_machine, env))
    except TimeoutError:
        directory = directory_of(env.get(Env.CHECKPOINT_DIR))
        check, place = ("checkpoints", directory) if directory else ("sharedMemory", SHARED_MEMORY)
        message = f"the file system of {place} has not answered for {LOOK_SECONDS:.0f} s: have it looked at"
        return [Finding(check, Level.FAIL, message)]


async def _health(env: Mapping[str, str]) -> list[Finding]:
    return list(check_health(await nvidia_driver.present(env)))


async def _count_gpus(env: Mapping[str, str], starter: Starter) -> list[Finding]:
    with TemporaryDirectory(prefix="ddpjob-preflight-", ignore_cleanup_errors=True) as directory:
        answer = Path(directory) / "gpus.json"
        program = Program(module=True, name=COUNTING, arguments=(str(answer),))
        # The failure report of this process goes to a temporary file, because the finding already describes the
        # failure.
        rank = await starter.start(Launch(program, {**env, Env.TERMINATION_LOG: str(Path(directory) / "report")}))
        try:
            async with asyncio.timeout(GPU_SECONDS):
                code = await asyncio.shield(rank.ended)
        except TimeoutError:
            rank.send_signal(signal.SIGKILL)
            return [_mute(f"have not answered for {GPU_SECONDS:.0f} s")]
        if code or not answer.exists():
            return [_mute(f"could not be counted: the process that tried ended with exit code {code}")]
        return list(check_gpus(env, VisibleGpus(**json.loads(answer.read_text(encoding="utf-8")))))


def _mute(what: str) -> Finding:
    return Finding("gpus", Level.FAIL, f"the GPUs of this node {what}; have its driver looked at")
