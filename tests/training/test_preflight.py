"""The preflight with real processes: the ranks that try a gang's machines together, and what one node looks at."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob_preflight import collective, exchange
from ddpjob_preflight.collective import MARGIN_SECONDS, PAIRS_SHARE
from ddpjob_preflight.exchange import Group, sum_over
from ddpjob_preflight.plan import Kind, Outcome, PlanStep
from ddpjob_rank.world import World
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.node.warm import Warm
from ddpjob_supervisor.node.zygote_process import Preload
from ddpjob_supervisor.preflight.findings import Finding, Level
from ddpjob_supervisor.preflight.running import preflight

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.forking import FORKS, settle
from tests.training.machines import ip
from tests.training.namespaces import enter_machine
from tests.training.ranks import Run, world

Sum = Callable[[Group, World, str, float], Outcome]
Allowed = Callable[[PlanStep], float]


def soon() -> int:
    """Seconds for a trial that must fail, in which those that are well have to come nevertheless."""
    return round(patience(4))


def patiently() -> float:
    """Seconds for a trial that must not fail."""
    return patience(60)


def rank_of(
    environment: dict[str, str],
    files: str,
    seconds: float,
    *,
    sum_over: Sum | None,
    machine: str | None,
    allowed: Allowed | None,
) -> None:
    """One rank of the collective part, on a machine of its own if it has one.

    `sum_over` is what its children do, `allowed` the time limit of a step.
    """
    if machine is not None:
        enter_machine(machine)
    settle(environment, [(1, Path(f"{files}.out")), (2, Path(f"{files}.err"))])
    sys.argv = ["collective", "--timeout-seconds", str(seconds)]
    if allowed is not None:
        collective.Trials._allowed = staticmethod(allowed)  # type: ignore[assignment,method-assign]
    if sum_over is not None:
        collective.Trials = partial(collective.Trials, sum_over=sum_over)  # type: ignore[assignment,misc]
    collective.main()


def stops_itself(*_: Any) -> Outcome:
    os.kill(os.getpid(), signal.SIGSTOP)
    return Outcome()


def stops_its_rank(*_: Any) -> Outcome:
    os.kill(os.getppid(), signal.SIGSTOP)
    return Outcome()


def dies(*_: Any) -> Outcome:
    os.kill(os.getpid(), signal.SIGSEGV)
    return Outcome()


def miscalculates(group: Group, world: World, backend: str, seconds: float) -> Outcome:
    exchange.FACTORS = 1
    return sum_over(group, world, backend, seconds)


class Gang:
    """Starts gangs of ranks with one process on each node."""

    def __init__(self, directory: Path) -> None:
        self.run = Run(directory)

    def __call__(
        self,
        size: int,
        present: set[int] | None = None,
        *,
        seconds: float | None = None,
        port: int = 0,
        machines: list[str] | None = None,
        allowed: Allowed | None = None,
        **meets: Sum,
    ) -> Run:
        """Those of `size` ranks that are present, each on its machine; `r1=...` is what rank 1's children do."""
        port = port or hold_port()
        master = {"MASTER_ADDR": "10.77.0.10"} if machines else {}
        for rank in range(size) if present is None else sorted(present):
            environment = {
                **os.environ,
                **world(rank, size, port),
                **master,
                "DDPJOB_BACKEND": "gloo",
                "DDPJOB_TERMINATION_LOG": str(self.run.directory / f"{rank}.report"),
            }
            process = FORKS.Process(
                target=rank_of,
                args=(environment, str(self.run.directory / str(rank)), seconds or patiently()),
                kwargs={
                    "sum_over": meets.get(f"r{rank}"),
                    "machine": machines[rank] if machines else None,
                    "allowed": allowed,
                },
                daemon=True,
            )
            process.start()
            self.run.processes.append(process)
        return self.run


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    gang = Gang(tmp_path)
    yield gang
    gang.run.kill()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_healthy_gang_passes_and_is_told_its_bandwidth(gang: Gang, size: int) -> None:
    run = gang(size)
    assert run.end() == [0] * size, run.story()
    said = f"preflight: all_reduce of 16 MiB over {size} ranks: the sum is right; algorithm bandwidth "
    assert run.output().startswith(said) == (size > 1), run.story()
    assert not list(run.directory.glob("*.report")), run.story()


@pytest.mark.parametrize(
    ("how", "said"),
    [(stops_itself, "no end within {seconds:.0f} s; its network"), (miscalculates, "the sum of a known tensor")],
    ids=["its exchange hangs", "it sums wrongly"],
)
def test_the_node_that_is_to_blame_says_so_itself(gang: Gang, how: Sum, said: str) -> None:
    seconds = patiently() if how is miscalculates else 3 * soon()
    run = gang(3, seconds=seconds, r1=how)
    assert run.end() == [0, 201, 0], run.story()
    report = run.report(1)
    assert (report["cause"], report["exitCode"]) == ("PreflightFailed", 201)
    failed = "node 1 failed the all_reduce with every other node that was tried: "
    assert report["message"].startswith(failed + said.format(seconds=seconds * PAIRS_SHARE + MARGIN_SECONDS / 3)), (
        run.story()
    )


def test_of_two_nodes_both_are_named_with_what_one_of_them_knows(gang: Gang) -> None:
    run = gang(2, seconds=soon(), r1=dies)
    assert run.end() == [201, 201], run.story()
    said = "nodes 0 and 1 failed the all_reduce with each other: its process ended with exit code 139; "
    assert [run.report(rank)["message"].startswith(said) for rank in range(2)] == [True, True], run.story()


def test_a_rank_that_hangs_is_named_by_rank_0(gang: Gang) -> None:
    run = gang(3, seconds=soon(), r1=stops_its_rank)
    assert [run.end_of(rank) for rank in (0, 2)] == [201, 0], run.story()
    assert run.report()["message"].startswith("rank 1 on node 1 stopped answering: the process hangs, or"), (
        run.story()
    )


def test_a_rank_that_does_not_come_is_named_by_rank_0(gang: Gang) -> None:
    run = gang(3, present={0, 2}, seconds=soon())
    assert run.end() == [201, 0], run.story()
    assert run.report()["message"].startswith("rank 1 on node 1 did not reach rank 0 in time"), run.story()


def test_without_rank_0_each_says_that_it_does_not_answer(gang: Gang) -> None:
    seconds = soon()
    run = gang(3, present={1, 2}, seconds=seconds)
    assert run.end() == [201, 201], run.story()
    said = f"rank 2 waited {seconds} s for rank 0 to answer at 127.0.0.1:"
    assert run.report(2)["message"].startswith(said), run.story()


def test_a_rank_0_that_dies_is_a_lost_peer_to_the_others(gang: Gang) -> None:
    run = gang(2, seconds=3 * soon(), r0=stops_itself, r1=stops_itself)
    run.wait("rank 0's exchange", lambda: children(run.processes[0].pid) == 2)
    run.send(signal.SIGKILL)
    assert run.end() == [-signal.SIGKILL, 1], run.story()
    assert run.report(1)["cause"] == "PeerLost"


def test_what_a_rank_has_started_ends_with_it(gang: Gang) -> None:
    run = gang(2, r0=stops_itself, r1=stops_itself)
    run.wait("rank 0's exchange", lambda: children(run.processes[0].pid) == 2)
    left = started_by(run.processes[0].pid)
    run.send(signal.SIGKILL)
    run.wait("the end of what it has started", lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def children(pid: int) -> int:
    return len(started_by(pid))


def started_by(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_port_that_another_program_has_is_named(gang: Gang) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        run = gang(2, present={0}, port=port)
        assert run.end() == [201], run.story()
    assert run.report()["message"].startswith(f"rank 0 cannot serve port {port}: "), run.story()
    assert "address already in use" in run.report()["message"]


def drop(machine: str, number: int) -> None:
    """Has all packets of a machine for another one go to a card that is not there."""
    ip("-n", machine, "neigh", "replace", f"10.77.0.1{number}", "lladdr", "02:00:00:00:00:99", "dev", "eth0")


def allowed(short: float, long: float, step: PlanStep) -> float:
    """Only where node 1 meets node 2 the time limit is short, because there it is reached."""
    return short if step.kind is Kind.ALL or (1, 2) in step.pairs else long


def test_two_nodes_whose_packets_are_dropped_are_named(machines: list[str], gang: Gang) -> None:
    drop(machines[1], 2)
    long = patiently()
    run = gang(3, seconds=long, machines=machines, allowed=partial(allowed, soon(), long))
    assert run.end() == [0, 201, 201], run.story()
    assert "nodes 1 and 2 failed the all_reduce with each other: no end within" in run.story()


def test_a_processor_that_computes_right_has_no_wrong_products() -> None:
    assert exchange._wrong_products(torch.device("cpu")) == 0


def looked_at(env: dict[str, str], starter: Cold | Warm, host_name: str | None = None) -> list[Finding]:
    async def look() -> list[Finding]:
        async with asyncio.timeout(patience(60)), starter:
            return await preflight({**os.environ, **env}, starter, host_name, 30)

    return asyncio.run(look())


@pytest.mark.parametrize(
    "starter",
    [
        pytest.param(lambda: Warm(Preload(["torch"])), id="warm"),
        pytest.param(Cold, id="cold", marks=pytest.mark.full("test_ranks_of_a_node.py has programs started cold")),
    ],
)
def test_backend_nccl_without_a_gpu_never_gets_better(starter: Callable[[], Cold | Warm]) -> None:
    found = looked_at({"DDPJOB_BACKEND": "nccl", "NPROC_PER_NODE": "2", "CUDA_VISIBLE_DEVICES": ""}, starter())
    (gpus,) = (finding for finding in found if finding.check == "gpus")
    assert (gpus.level, gpus.retry) == (Level.FAIL, False), gpus
    assert gpus.message.startswith(
        "backend nccl needs 2 GPUs on each node, one for each process, but PyTorch sees 0 ("
    )


def test_a_node_that_will_do_is_through_before_its_zygote_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless.py").write_text("import time; time.sleep(3600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    env = {"DDPJOB_BACKEND": "gloo", "DDPJOB_CHECKPOINT_DIR": str(tmp_path)}
    found = looked_at(env, Warm(Preload(["endless"])), "localhost")
    assert not [finding for finding in found if finding.level is Level.FAIL], found
