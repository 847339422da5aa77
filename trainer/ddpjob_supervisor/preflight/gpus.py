"""Checks whether a node has the GPUs that its processes need. Pure: the GPUs are counted elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpjob_rank.console import counted
from ddpjob_rank.environment import Env

from ddpjob_supervisor.gpu.health import Gpu, problem_now, warning_now

from .findings import Finding, Level

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""The variable in which NVIDIA's device plugin names each GPU that it gives to a container."""

NOT_NAMED = frozenset({"", "all", "none", "void"})

NOT_GIVEN = ("Found no NVIDIA driver", "not compiled with CUDA", "No CUDA GPUs are available")
"""Parts of torch's messages if the container has no GPU or the image has no CUDA. Other messages mean a broken
GPU."""


@dataclass(frozen=True, slots=True)
class VisibleGpus:
    """The GPUs that torch sees in a process of this node."""

    count: int
    reason: str = ""
    """Torch's message if it sees no GPU."""


def check_gpus(env: Mapping[str, str], seen: VisibleGpus) -> Iterator[Finding]:
    """Reports a failure if this node has fewer GPUs than processes."""
    needed = int(env.get(Env.NPROC_PER_NODE) or env.get(Env.LOCAL_WORLD_SIZE) or 1)
    if seen.count >= needed:
        return
    given = _given(env)
    broken = given >= needed or not (seen.count or any(words in seen.reason for words in NOT_GIVEN))
    why = f" ({seen.reason})" if seen.reason else ""
    each = f"{counted(needed, 'GPU')} on each node, one for each process"
    problem = f"backend nccl needs {each}, but PyTorch sees {seen.count}{why}"
    if broken:
        todo = f"this container was given {given}: have the node looked at" if given else "have the node looked at"
    else:
        todo = "request as many in the template (nvidia.com/gpu), use fewer processes per node, or backend gloo"
    yield Finding("gpus", Level.FAIL, f"{problem}; {todo}", retry=broken)


def _given(env: Mapping[str, str]) -> int:
    named = env.get(VISIBLE_DEVICES, "")
    return 0 if named in NOT_NAMED else len(set(named.split(",")))  # A shared GPU is listed once for each share.


def check_health(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Reports failures and warnings about the GPUs of this node's processes, from the driver's data."""
    for gpu in gpus:
        if problem := problem_now(gpu):
            yield Finding("health", Level.FAIL, f"{problem}: have the machine looked at", device=True)
        elif warning := warning_now(gpu):
            yield Finding("health", Level.WARN, warning)
