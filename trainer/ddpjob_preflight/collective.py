"""The full preflight of a gang, in one process for each rank: `python -m ddpjob_preflight.collective`.

Rank 0 leads the other ranks through the plan, by means of a store. Each trial runs in a child process, so that a rank
survives a trial that hangs. All ranks exit with 0 if the machines are fit. If not, the ranks on the nodes at fault
exit with 201 or 202 and a failure report, and the others with 0. If no rank on such a node can report, rank 0 does.
"""

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from ddpjob_rank.console import complain
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import TrainerError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.failure.failure_report import report_of, report_path, write_report
from ddpjob_rank.parsing import Parser
from ddpjob_rank.stopping import leave_at_once
from ddpjob_rank.world import Node, World, read_world
from ddpjob_supervisor.preflight.findings import Finding, Level, PreflightError, log, verdict

from .child import Child
from .exchange import Group, sum_over, try_gpu
from .plan import Kind, Outcome, Outcomes, Plan, PlanStep, Shape, plan
from .trial_store import TrialStore, serve

DEFAULT_SECONDS = 60.0
"""The time limit of one trial. It is long because NCCL is slow with thousands of ranks."""

PAIRS_SHARE = 1 / 3
"""The time limit of a trial of two nodes, as a fraction of the limit of other trials."""

MARGIN_SECONDS = 3.0
"""How long the result of a trial may take to reach rank 0 after the end of the trial."""

Sum = Callable[[Group, World, str, float], Outcome]


def main() -> None:
    """Tests the machines, and exits with one of the contract's codes."""
    # Let SIGINT end this process without a traceback, because there is nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    world = read_world(os.environ)
    assert not isinstance(world, Node), "a supervisor starts this once for each process"
    parser = Parser(prog="collective")
    parser.add_argument("--timeout-seconds", type=float, default=DEFAULT_SECONDS)
    seconds = parser.parse_args().timeout_seconds
    try:
        Trials(world, os.environ.get(Env.BACKEND) or _fitting_backend(world), seconds).run()
    except TrainerError as error:
        complain(str(error))
        write_report(report_of(error, world.rank, None), report_path(os.environ))
        leave_at_once(error.exit_code)
    leave_at_once(ExitCode.DONE)


@dataclasses.dataclass(frozen=True, slots=True)
class Trials:
    """One rank's part in the trials of a gang."""

    world: World
    backend: str
    seconds: float
    """The time limit of one trial."""
    sum_over: Sum = sum_over

    def run(self) -> None:
        """Takes part in the plan, together with all other ranks.

        Raises:
            PreflightError: The machines are not fit, and this rank has to report it.
            PeerLostError: Rank 0 cannot be reached any more.
        """
        if self.world.alone:
            findings = _drive(self._plan(), lambda step: {0: self._try(step)})
            log(findings)
            if error := verdict(findings):
                raise error
        elif not self.world.leads:
            self._follow(TrialStore(self.world, self.seconds))
        else:
            with Child(partial(serve, self.world, self.seconds)) as store:
                served = store.outcome(self.seconds)
                if served.trouble:
                    raise PreflightError(f"rank 0 cannot serve port {self.world.master_port}: {served.trouble}", (0,))
                self._lead(TrialStore(self.world, self.seconds))

    def _plan(self) -> Plan:
        shape = Shape(self.world.world_size, self.world.local_world_size)
        return plan(shape, devices=self.backend == "nccl")

    def _lead(self, store: TrialStore) -> None:
        others = set(range(1, self.world.world_size))

        def ask(step: PlanStep) -> Outcomes:
            deadline = time.monotonic() + self._allowed(step) + MARGIN_SECONDS
            store.announce({"kind": step.kind, "pairs": step.pairs})
            own = self._try(step)
            theirs = store.outcomes(others, deadline - time.monotonic())
            others.intersection_update(theirs)
            return {0: own, **theirs}

        findings = _drive(self._plan(), ask)
        store.announce({"findings": [dataclasses.asdict(finding) for finding in findings]})
        informed = store.outcomes(others, MARGIN_SECONDS)
        log(findings)
        error = verdict(findings)
        if error and not any(self._node_of(rank) in error.nodes for rank in informed if 0 not in error.nodes):
            raise error

    def _follow(self, store: TrialStore) -> None:
        entry = store.next_step(self.seconds)
        while "findings" not in entry:
            step = PlanStep(Kind(entry["kind"]), tuple((lower, higher) for lower, higher in entry["pairs"]))
            store.answer(self._try(step))
            entry = store.next_step(self.seconds + 2 * MARGIN_SECONDS)
        store.answer(Outcome())
        error = verdict([_finding(fields) for fields in entry["findings"]])
        if error and self._node_of(self.world.rank) in error.nodes:
            raise error

    def _try(self, step: PlanStep) -> Outcome:
        """Does this rank's part of a step."""
        match step.kind:
            case Kind.ARRIVE:
                return Outcome()
            case Kind.DEVICE:
                return self._in_child(step, partial(try_gpu, self.world.local_rank))
            case Kind.ALL:
                group = Group("all", self.world.rank, self.world.world_size)
            case Kind.PAIRS:
                node = self._node_of(self.world.rank)
                pair = next((pair for pair in step.pairs if node in pair), None)
                if pair is None or self.world.local_rank:
                    return Outcome()
                group = Group("{}-{}".format(*pair), pair.index(node), len(pair))
        return self._in_child(step, partial(self.sum_over, group, self.world, self.backend, self._allowed(step)))

    def _in_child(self, step: PlanStep, trial: Callable[[], Outcome]) -> Outcome:
        with Child(trial) as child:
            return child.outcome(self._allowed(step) + MARGIN_SECONDS / 3)

    def _allowed(self, step: PlanStep) -> float:
        return self.seconds * PAIRS_SHARE if step.kind is Kind.PAIRS else self.seconds

    def _node_of(self, rank: int) -> int:
        return rank // self.world.local_world_size


def _drive(steps: Plan, ask: Callable[[PlanStep], Outcomes]) -> list[Finding]:
    """Runs all steps of a plan with `ask`, and returns the findings."""
    try:
        step = next(steps)
        while True:
            step = steps.send(ask(step))
    except StopIteration as end:
        findings: list[Finding] = end.value
        return findings


def _finding(entry: dict[str, Any]) -> Finding:
    return Finding(**{**entry, "level": Level(entry["level"]), "nodes": tuple(entry["nodes"])})


def _fitting_backend(world: World) -> str:
    return "nccl" if torch.cuda.device_count() >= world.local_world_size else "gloo"


if __name__ == "__main__":
    main()
