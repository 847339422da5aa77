"""What a supervisor passes on to its ranks, and what it says of their ends; its ranks are made up."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.environment import Env
from ddpjob_rank.machine import memory
from ddpjob_rank.running.program import Program
from ddpjob_rank.running.stderr import SUFFIX
from ddpjob_supervisor.gang import local_ranks as module
from ddpjob_supervisor.gang.local_ranks import LocalRanks, rank_specs
from ddpjob_supervisor.gang.messages import End
from ddpjob_supervisor.gpu.nvml import Nvml
from ddpjob_supervisor.node.ranks import Launch, Rank, StartError
from ddpjob_supervisor.watch import nvidia_driver

from tests.unit.supervisor.gpu.driver import Driver
from tests.unit.supervisor.gpu.transcripts import transcript

PROGRAM = Program(module=True, name="any")
ABORT = 128 + signal.SIGABRT
WAITED = "it waited in NCCL's ALLREDUCE number 460631 for 600 s"
ANOTHERS = "the NCCL watchdog of another rank gave up, and signalled this rank"
ENDED = "NCCL's watchdog ended the process, due to collective timeout or exception"
REPORT = {"exitCode": 3, "cause": "DataError", "message": "no shard 7", "exception": "KeyError", "step": 12}
"""As a rank leaves it."""


@dataclass
class Puppet(Rank):
    """A rank that is no process: it ends when the test says so, or is killed."""

    told: list[signal.Signals] = field(default_factory=list)
    only_interruptible: bool = False  # type: ignore[misc]
    """Whether it is like a script that knows of no signals."""

    @property
    def runs(self) -> bool:
        return not self.ended.done()

    def interrupt(self) -> None:
        self.told.append(signal.SIGINT)

    def send_signal(self, number: signal.Signals) -> None:
        self.told.append(number)

    def kill(self) -> None:
        if not self.ended.done():
            self.ended.set_result(128 + signal.SIGKILL)


@dataclass
class Puppets:
    """Starts puppets, and fails at the rank that it is told to."""

    fails_at: int | None = None
    started: list[Puppet] = field(default_factory=list)

    async def ready(self) -> None:
        """At once."""

    async def start(self, launch: Launch) -> Rank:
        if int(launch.env["LOCAL_RANK"]) == self.fails_at:
            raise StartError("no more processes")
        self.started.append(Puppet(len(self.started) + 1))
        return self.started[-1]


@dataclass
class Play:
    """Two ranks, numbered from 4."""

    directory: Path
    starter: Puppets
    failures: list[End] = field(default_factory=list)
    said: str = ""
    """By the first rank, on stderr."""

    def __post_init__(self) -> None:
        self.local = LocalRanks(self.starter, self.failures.append)  # type: ignore[arg-type]

    def run(self, act: Callable[[list[Puppet]], None]) -> tuple[End, ...]:
        """Its ends, where this happens once all ranks run; who still runs after it ends with 0."""

        async def play() -> tuple[End, ...]:
            specs = [
                replace(spec, env={**spec.env, Env.HEARTBEAT: str(self.directory / str(local))})
                for local, spec in enumerate(rank_specs({}, 4, 2, self.directory))
            ]
            running = asyncio.ensure_future(self.local.run(PROGRAM, specs))
            while not self.local.pids and not running.done():  # noqa: ASYNC110  (nothing tells that all have started)
                await asyncio.sleep(0)
            if self.said:
                with (self.directory / f"0{SUFFIX}").open("w") as stderr:
                    stderr.write(self.said)
            act(self.starter.started)
            for rank in self.starter.started:
                if not rank.ended.done():
                    rank.ended.set_result(0)
            return await running

        return asyncio.run(play())

    def says(self, *lines: str) -> None:
        self.said = "\n".join([*lines, ""])

    def end(self, code: int, report: dict[str, Any] | None = None, *, asked: bool = False) -> End:
        """The end of the first rank, which leaves a report or none, and may have been told to stop."""

        def ends(ranks: list[Puppet]) -> None:
            if asked:
                self.local.send_signal(signal.SIGTERM)
            if report is not None:
                (self.directory / "report-0.json").write_text(json.dumps(report))
            ranks[0].ended.set_result(code)

        return self.run(ends)[0]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path, Puppets())


def words(end: End) -> tuple[int, str, str]:
    return end.exit_code, end.cause, end.message


def test_a_signal_reaches_each_rank_also_one_that_is_stopped(play: Play) -> None:
    play.run(lambda _: play.local.send_signal(signal.SIGTERM))
    assert [rank.told for rank in play.starter.started] == [[signal.SIGTERM, signal.SIGCONT]] * 2


INT, TERM, CONT = signal.SIGINT, signal.SIGTERM, signal.SIGCONT


def test_a_rank_that_knows_of_no_signals_is_interrupted_and_only_in_the_end_told_by_the_other(play: Play) -> None:
    async def told() -> list[list[signal.Signals]]:
        play.local._grace = 0.02
        running = asyncio.ensure_future(play.local.run(PROGRAM, rank_specs({}, 4, 2, play.directory)))
        while not play.local.pids:  # noqa: ASYNC110  (nothing tells that all have started)
            await asyncio.sleep(0)
        first, second = play.starter.started
        first.only_interruptible = True
        play.local.send_signal(TERM)
        at_once = [first.told[:], second.told[:]]
        second.ended.set_result(205)
        while TERM not in first.told:  # noqa: ASYNC110  (as above)
            await asyncio.sleep(0)
        first.ended.set_result(128 + TERM)
        assert [words(end) for end in await running] == [(143, "", ""), (205, "", "")]
        return [*at_once, first.told]

    assert asyncio.run(told()) == [[INT, CONT], [TERM, CONT], [INT, CONT, TERM]]
    assert play.failures == []


@pytest.mark.parametrize("heeds", [True, False])
def test_who_still_runs_shortly_before_it_is_killed_is_named(
    play: Play, capsys: pytest.CaptureFixture[str], *, heeds: bool
) -> None:
    async def told() -> None:
        play.local._grace = 0.02
        running = asyncio.ensure_future(play.local.run(PROGRAM, rank_specs({}, 4, 2, play.directory)))
        while not play.local.pids:  # noqa: ASYNC110  (nothing tells that all have started)
            await asyncio.sleep(0)
        first, second = play.starter.started
        play.local.send_signal(TERM)
        first.ended.set_result(0)
        if heeds:
            second.ended.set_result(0)
        await asyncio.sleep(0.1)
        second.kill()
        await running

    asyncio.run(told())
    assert ("warning: rank 5: still running " in capsys.readouterr().err) is not heeds


def test_one_that_is_told_a_second_time_gets_that_signal(play: Play) -> None:
    def told_twice(ranks: list[Puppet]) -> None:
        ranks[0].only_interruptible = True
        play.local.send_signal(TERM)
        play.local.send_signal(TERM)

    play.run(told_twice)
    assert play.starter.started[0].told == [INT, CONT, TERM, CONT]


@pytest.mark.parametrize(
    ("code", "interrupted", "said"),
    [
        (0, True, (130, "", "")),
        (130, True, (130, "", "")),
        (205, True, (205, "", "")),
        (1, True, (1, "Application", "ended with exit code 1")),
        (0, False, (205, "", "")),
        (130, False, (130, "Application", "killed by SIGINT")),
        (0, None, (0, "", "")),
        (130, None, (130, "Application", "killed by SIGINT")),
    ],
    ids=[
        "it has cleaned up",
        "the interrupt went through",
        "it saved and stopped as ours do",
        "it failed",
        "it ended well by a handler of its own",
        "somebody else interrupted it",
        "it had finished before",
        "somebody else had interrupted it before",
    ],
)
def test_what_counts_as_stopped(
    play: Play, code: int, said: tuple[int, str, str], *, interrupted: bool | None
) -> None:
    """`interrupted` is None: it has ended before it is told."""

    def ends(ranks: list[Puppet]) -> None:
        ranks[0].only_interruptible = bool(interrupted)
        if interrupted is not None:
            play.local.send_signal(TERM)
        ranks[0].ended.set_result(code)
        if interrupted is None:
            play.local.send_signal(TERM)

    assert words(play.run(ends)[0]) == said


def test_who_goes_on_after_a_second_request_is_ended_and_that_is_no_failure(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked_twice() -> tuple[End, ...]:
        monkeypatch.setattr(module, "HEEDING_SECONDS", 0.0)
        running = asyncio.ensure_future(play.local.run(PROGRAM, rank_specs({}, 4, 2, play.directory)))
        while not play.local.pids:  # noqa: ASYNC110  (nothing tells that all have started)
            await asyncio.sleep(0)
        play.local.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)
        assert len(play.local.pids) == 2, "it may take its time to save"
        play.local.send_signal(signal.SIGTERM)
        return await running

    assert [words(end) for end in asyncio.run(asked_twice())] == [(137, "", "")] * 2
    assert play.failures == []


def test_what_was_told_while_ranks_were_starting_they_hear_once_they_run(play: Play) -> None:
    start = play.starter.start

    async def told_meanwhile(launch: Launch) -> Rank:
        if not play.starter.started:
            play.local.send_signal(signal.SIGUSR1)
            play.local.send_signal(TERM)
        rank = await start(launch)
        play.starter.started[-1].only_interruptible = len(play.starter.started) > 1
        return rank

    play.starter.start = told_meanwhile  # type: ignore[method-assign]
    play.run(lambda _: None)
    assert [rank.told for rank in play.starter.started] == [
        [signal.SIGUSR1, CONT, TERM, CONT],
        [INT, CONT, TERM, CONT],
    ]


def test_each_rank_has_its_own_share_of_the_cores(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    cores, launches = [frozenset({0, 1}), frozenset({2, 3, 4}), frozenset({5})], list[Launch]()
    start = play.starter.start

    async def noted(launch: Launch) -> Rank:
        launches.append(launch)
        return await start(launch)

    play.starter.start = noted  # type: ignore[method-assign]
    monkeypatch.setattr(module, "cores_of_each", lambda *_, **__: cores)
    monkeypatch.setattr(module, "threads_within", lambda each: [len(own) for own in each])
    ranks = asyncio.run(play.local._started(PROGRAM, rank_specs({}, 3, 3, play.directory)))
    assert len(ranks) == len(cores)
    found = {launch.env["LOCAL_RANK"]: (launch.env["OMP_NUM_THREADS"], launch.cores) for launch in launches}
    assert found == {str(local): (str(len(own)), own) for local, own in enumerate(cores)}


def test_a_report_of_a_former_attempt_counts_no_more(play: Play) -> None:
    (play.directory / "report-0.json").write_text(json.dumps(REPORT))
    assert words(play.end(1)) == (1, "Application", "ended with exit code 1")


@pytest.mark.parametrize(
    ("code", "report", "asked", "said"),
    [
        (0, None, False, (0, "", "")),
        (0, REPORT, False, (0, "", "")),
        (205, None, True, (205, "", "")),
        (7, None, False, (7, "Application", "ended with exit code 7")),
        (7, None, True, (7, "Application", "ended with exit code 7")),
        (128, None, False, (128, "Application", "ended with exit code 128")),
        (128 + signal.SIGSEGV, None, False, (139, "Application", "killed by SIGSEGV")),
        (128 + 99, None, False, (227, "Application", "killed by signal 99")),
        (128 + signal.SIGTERM, None, True, (143, "", "")),
        (128 + signal.SIGTERM, None, False, (143, "Application", "killed by SIGTERM")),
        (7, REPORT, False, (7, "DataError", "no shard 7")),
        (128 + signal.SIGTERM, REPORT, True, (3, "DataError", "no shard 7")),
        (128 + signal.SIGABRT, REPORT, False, (134, "DataError", "no shard 7")),
        (7, {"exitCode": 3}, False, (7, "Application", "ended with exit code 7")),
    ],
    ids=[
        "done",
        "done, whatever it has reported",
        "saved and stopped",
        "failed",
        "failed after it was told to stop",
        "failed with the last code that is no signal's",
        "crashed",
        "a signal without a name",
        "ended as it was told to",
        "ended by somebody else",
        "its report tells why, the exit code is the process's",
        "it had failed, and was ended while it was about to end: both are as reported",
        "it reported, and crashed at the end",
        "a report that is none",
    ],
)
def test_the_end_of_a_rank_is_told_by_its_code_and_its_report(
    play: Play, code: int, report: dict[str, Any] | None, said: tuple[int, str, str], *, asked: bool
) -> None:
    end = play.end(code, report, asked=asked)
    assert (end.rank, words(end)) == (4, said)
    assert abs(end.time - time.time()) < 60
    assert len(play.failures) == bool(end.cause), "only a failure makes others end"


@pytest.mark.parametrize(
    ("code", "report", "log", "said"),
    [
        (ABORT, None, "timeout-torch-2.7", (ABORT, "Stalled", WAITED)),
        (ABORT, None, "ecc", (ABORT, "DeviceFailed", "CUDA error: uncorrectable ECC error encountered")),
        (ABORT, None, "cuda-unknown-error", (ABORT, "Application", "CUDA error: unknown error")),
        (ABORT, None, "timeout-of-another-rank", (ABORT, "PeerLost", ANOTHERS)),
        (ABORT, None, "ended-after-its-own-signal", (ABORT, "Stalled", ENDED)),
        (1, REPORT, "timeout-of-another-rank", (1, "DataError", "no shard 7")),
        (ABORT, REPORT, "timeout-torch-2.7", (ABORT, "DataError", "no shard 7")),
        (1, REPORT | {"cause": "PeerLost"}, "timeout-torch-2.7", (1, "Stalled", WAITED)),
        (1, None, "timeout-torch-2.7", (1, "Application", "ended with exit code 1")),
        (139, None, "timeout-torch-2.7", (139, "Application", "killed by SIGSEGV")),
    ],
    ids=[
        "it waited for another rank",
        "its GPU is broken",
        "an error that may be its own",
        "another rank waited, and told it so",
        "it waited, and how long is lost",
        "another rank waited, but it raised an error of its own",
        "its own report says more",
        "its own report says only that a peer is lost",
        "it has ended by itself",
        "it has crashed",
    ],
)
def test_where_nccl_ends_a_rank_its_last_words_tell_why(
    play: Play, code: int, report: dict[str, Any] | None, log: str, said: tuple[int, str, str]
) -> None:
    play.says(*transcript(log))
    end = play.end(code, report)
    assert words(end) == said
    assert bool(end.waited) == (said[1] == "Stalled")


MISMATCH = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "  what():  [enforce fail at /__w/gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. 2 vs 1",
)
CRASHED = ("Current thread 0x00007f4b (most recent call first):", '  File "/app/train.py", line 13 in step')


@pytest.mark.parametrize(
    ("code", "lines", "said", "exception"),
    [
        (ABORT, MISMATCH, "op.preamble.length <= op.nbytes. 2 vs 1 (killed by SIGABRT)", "gloo::EnforceNotMet"),
        (ABORT, CRASHED, "killed by SIGABRT in step (train.py:13)", None),
        (128 + signal.SIGSEGV, CRASHED, "killed by SIGSEGV in step (train.py:13)", None),
        (128 + signal.SIGBUS, (), "killed by SIGBUS", None),
        (128 + signal.SIGKILL, (*MISMATCH, *CRASHED), "killed by SIGKILL", None),
        (9, MISMATCH, "ended with exit code 9", None),
    ],
)
def test_where_a_rank_crashes_its_last_words_tell_why_and_where(
    play: Play, code: int, lines: tuple[str, ...], said: str, exception: str | None
) -> None:
    play.says(*lines)
    end = play.end(code)
    assert (*words(end), end.exception) == (code, "Application", said, exception)


def test_a_rank_that_crashes_because_it_lost_a_peer_has_lost_a_peer(play: Play) -> None:
    play.says(MISMATCH[0], "  what():  [/__w/gloo/transport/tcp/pair.cc:589] Read error: Connection reset by peer")
    assert words(play.end(ABORT)) == (ABORT, "PeerLost", "lost a peer: Read error: Connection reset by peer")


@pytest.mark.parametrize(("more", "waited"), [({"waited": True}, "a collective of gloo"), ({}, "")])
def test_a_rank_that_gave_up_in_a_collective_of_gloo_waited_for_another(
    play: Play, more: dict[str, Any], waited: str
) -> None:
    assert play.end(1, {**REPORT, **more, "cause": "PeerLost"}).waited == waited


def test_a_rank_that_reports_its_failure_is_not_explained_by_a_process_of_its_own_that_crashes(play: Play) -> None:
    play.says(*MISMATCH, *CRASHED)
    assert words(play.end(ABORT, REPORT)) == (ABORT, "DataError", "no shard 7")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The one of this machine, with two GPUs."""
    made_up = Driver()
    made_up.hot = 0
    nvml = Nvml(made_up)
    monkeypatch.setattr(nvidia_driver, "nvml", lambda: nvml)
    return made_up


FALLEN = "GPU {}: Xid 79, GPU has fallen off the bus"


@pytest.mark.parametrize(
    ("code", "cause", "gpu", "said"),
    [
        (ABORT, None, 0, (ABORT, "DeviceFailed", FALLEN.format(0))),
        (1, "PeerLost", 0, (1, "DeviceFailed", FALLEN.format(0))),
        (ABORT, None, 1, (ABORT, "Application", "killed by SIGABRT")),
        (1, "DataError", 0, (1, "DataError", "no shard 7")),
        (1, "Application", 0, (1, "Application", "no shard 7")),
        (1, "ConfigError", 0, (1, "ConfigError", "no shard 7")),
        (0, None, 0, (0, "", "")),
    ],
    ids=[
        *("a signal", "a lost peer", "another rank's GPU", "a cause of its own", "an exception", "a mistake", "done"),
    ],
)
def test_a_gpu_that_broke_meanwhile_explains_what_its_rank_does_not(
    tmp_path: Path, driver: Driver, code: int, cause: str | None, *, gpu: int, said: tuple[int, str, str]
) -> None:
    def ends(ranks: list[Puppet]) -> None:
        driver.events = [(gpu, 79)]
        if cause is not None:
            (tmp_path / "report-0.json").write_text(json.dumps(REPORT | {"cause": cause}))
        ranks[0].ended.set_result(code)

    assert words(Play(tmp_path, Puppets()).run(ends)[0]) == said


def test_each_rank_of_a_gpu_that_broke_is_told_of_it(play: Play, driver: Driver) -> None:
    def ends(ranks: list[Puppet]) -> None:
        driver.events = [(0, 79), (1, 79)]
        for rank in ranks:
            rank.ended.set_result(ABORT)

    assert [words(end)[1:] for end in play.run(ends)] == [("DeviceFailed", FALLEN.format(gpu)) for gpu in range(2)]


def test_what_an_attempt_survived_is_no_explanation_in_the_next(play: Play, driver: Driver) -> None:
    driver.events = [(0, 79)]
    assert words(play.end(ABORT)) == (ABORT, "Application", "killed by SIGABRT")


@pytest.mark.parametrize(("xid", "rank"), [(79, 5), (31, None)])
def test_a_rank_that_hangs_on_a_broken_gpu_is_found(play: Play, driver: Driver, xid: int, rank: int | None) -> None:
    async def found() -> End | None:
        running = asyncio.ensure_future(play.local.run(PROGRAM, rank_specs({}, 4, 2, play.directory)))
        while not play.local.pids:  # noqa: ASYNC110  (nothing tells that all have started)
            await asyncio.sleep(0)
        driver.events = [(1, xid)]
        end = await play.local.broken_device()
        play.local.stop()
        await running
        return end

    end = asyncio.run(found())
    assert (end and end.rank) == rank
    assert end is None or (end.cause, end.message) == ("DeviceFailed", f"it hangs, and {FALLEN.format(1)}")


def test_how_many_collectives_a_rank_had_begun_is_told_even_of_one_that_was_ended(play: Play) -> None:
    play.says(*transcript("timeout-of-another-rank"))
    ends = play.run(lambda _: play.local.stop())
    assert [end.begun for end in ends] == [{"0 nccl": 1261}, {}]
    assert not any(end.cause or end.waited for end in ends)


def test_a_report_tells_the_exception_and_the_step(play: Play) -> None:
    end = play.end(7, REPORT)
    assert (end.exception, end.step) == ("KeyError", 12)


@pytest.mark.parametrize(("kills", "cause"), [((2, 3), "OutOfMemory"), ((2, 2), "Application")])
def test_a_killed_rank_was_out_of_memory_where_the_kernel_has_counted_one(
    play: Play, kills: tuple[int, int], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter(kills)
    monkeypatch.setattr(memory, "kills", lambda: next(counted, kills[-1]))
    end = play.end(128 + signal.SIGKILL)
    assert end.cause == cause
    assert end.message.startswith("killed by SIGKILL")


def test_who_is_ended_by_its_supervisor_has_not_failed(play: Play) -> None:
    ends = play.run(lambda _: play.local.stop())
    assert [words(end) for end in ends] == [(128 + signal.SIGKILL, "", "")] * 2
    assert play.failures == []


def test_who_had_failed_before_its_supervisor_ended_it_is_told_as_it_reported(play: Play) -> None:
    def stops(_: list[Puppet]) -> None:
        (play.directory / "report-1.json").write_text(json.dumps(REPORT))
        play.local.stop()

    ends = play.run(stops)
    assert [words(end) for end in ends] == [(137, "", ""), (3, "DataError", "no shard 7")]
    assert play.failures == [], "all end anyway"


def test_where_one_cannot_be_started_none_runs(tmp_path: Path) -> None:
    play = Play(tmp_path, Puppets(fails_at=1))
    with pytest.raises(StartError, match="no more processes"):
        play.run(lambda _: None)
    assert [rank.ended.result() for rank in play.starter.started] == [128 + signal.SIGKILL]


@pytest.mark.parametrize(("stopped", "code"), [(True, 137), (False, 143)])
def test_ranks_that_are_not_wanted_any_more_are_not_started(play: Play, code: int, *, stopped: bool) -> None:
    if stopped:
        play.local.stop()
    else:
        play.local.send_signal(signal.SIGTERM)
        play.local.send_signal(signal.SIGINT)
    ends = play.run(lambda _: None)
    assert [(end.rank, *words(end)) for end in ends] == [(4, code, "", ""), (5, code, "", "")]
    assert play.starter.started == []


def test_who_runs_is_known_by_local_rank(play: Play) -> None:
    def first_ends(ranks: list[Puppet]) -> None:
        assert play.local.pids == {0: 1, 1: 2}
        assert play.local.ended == {}
        ranks[0].ended.set_result(0)
        assert play.local.pids == {1: 2}
        assert play.local.ended == {0: None}, "how is not known yet"

    play.run(first_ends)


def test_each_rank_of_a_node_has_variables_of_its_own(tmp_path: Path) -> None:
    specs = rank_specs({"A": "b", "RANK": "?", "NODE_RANK": "1"}, 6, 3, tmp_path)
    for local, spec in enumerate(specs):
        assert spec.rank == 6 + local
        assert spec.env == {
            "A": "b",
            "NODE_RANK": "2",
            "RANK": str(spec.rank),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": "3",
            "DDPJOB_TERMINATION_LOG": str(spec.report),
        }
    assert len({spec.report for spec in specs}) == len(specs) == 3
