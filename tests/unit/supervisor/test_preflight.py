"""The fast preflight: what is said of what was seen, and what it amounts to."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.failure.failure_report import report_of
from ddpjob_rank.manifests.manifest import Manifest, encoded
from ddpjob_supervisor.gpu.health import Gpu
from ddpjob_supervisor.gpu.nvml import Nvml
from ddpjob_supervisor.node import open_files
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.preflight import names, running
from ddpjob_supervisor.preflight.clocks import Skew, check_clocks, skew
from ddpjob_supervisor.preflight.facts import Directory, Facts, directory, inspect_machine
from ddpjob_supervisor.preflight.fast import GIB, MIB, check_machine
from ddpjob_supervisor.preflight.findings import Finding, Level, log, verdict
from ddpjob_supervisor.preflight.gpus import VisibleGpus, check_gpus, check_health
from ddpjob_supervisor.preflight.names import check_name
from ddpjob_supervisor.watch import nvidia_driver
from ddpjob_supervisor.watch.threads import in_thread

from .gpu.driver import Driver

OK = Finding("a", Level.OK, "fine")
WARN = Finding("a", Level.WARN, "not so fine")
RETRY = Finding("b", Level.FAIL, "node 1 hangs", nodes=(1,))
RETRY_TOO = Finding("b", Level.FAIL, "nodes 1 and 2 are apart", nodes=(1, 2))
NEVER = Finding("c", Level.FAIL, "no GPU", retry=False, nodes=(3,))


@pytest.mark.parametrize(
    ("findings", "exit_code", "message", "nodes"),
    [
        ([RETRY], ExitCode.PREFLIGHT_RETRY, "node 1 hangs", (1,)),
        ([OK, RETRY, WARN, RETRY_TOO], ExitCode.PREFLIGHT_RETRY, "node 1 hangs; nodes 1 and 2 are apart", (1, 2)),
        ([NEVER], ExitCode.PREFLIGHT_NEVER, "no GPU", (3,)),
        ([RETRY, NEVER], ExitCode.PREFLIGHT_NEVER, "no GPU", (3,)),
    ],
    ids=["retry", "two to retry", "never", "never beats retry"],
)
def test_failures_end_the_run_and_what_never_gets_better_decides(
    findings: list[Finding], exit_code: ExitCode, message: str, nodes: tuple[int, ...]
) -> None:
    error = verdict(findings)
    assert error is not None
    assert (error.exit_code, str(error), error.nodes) == (exit_code, message, nodes)
    report = report_of(error, rank=4, step=None)
    assert (report.cause, report.exit_code, report.message) == ("PreflightFailed", exit_code, message)


@pytest.mark.parametrize("findings", [[], [OK], [WARN, OK]], ids=["nothing", "fine", "a warning"])
def test_nothing_else_ends_the_run(findings: list[Finding]) -> None:
    assert verdict(findings) is None


def test_warnings_are_told_and_failures_are_left_to_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    log([OK, WARN, RETRY])
    said = capsys.readouterr()
    assert (said.out, said.err) == ("preflight: fine\n", "warning: preflight: not so fine\n")


SHM = Directory("/dev/shm", total=8 * GIB, free=8 * GIB)
ROOM = Directory("/checkpoints", total=100 * GIB, free=50 * GIB)


def broken(number: int) -> Directory:
    return Directory("/checkpoints", error=number)


@pytest.mark.parametrize(
    ("facts", "env", "level", "retry", "said"),
    [
        (
            Facts(Directory("/dev/shm", total=64 * MIB, free=64 * MIB)),
            {},
            "warn",
            None,
            "has only 64 MiB, too little",
        ),
        (Facts(Directory("/dev/shm", total=GIB, free=MIB)), {}, "warn", None, "has only 1 MiB of 1 GiB left"),
        (Facts(Directory("/dev/shm", error=errno.EROFS)), {}, "fail", False, "cannot be written to (Read-only file"),
        (Facts(Directory("/dev/shm", error=errno.ENOSPC)), {}, "fail", True, "(No space left on device)"),
        (Facts(Directory("/dev/shm", error=errno.EROFS)), {}, "fail", False, "(Read-only file system)"),
        (Facts(open_files=256), {}, "warn", None, "may open only 256 files, but should be able to open 1024"),
        (Facts(open_files=1024), {"WORLD_SIZE": "1000"}, "warn", None, "but should be able to open 2512"),
        (
            Facts(checkpoints=broken(errno.EACCES)),
            {},
            "fail",
            False,
            "/checkpoints cannot be used: Permission denied",
        ),
        (Facts(checkpoints=broken(errno.ENOTDIR)), {}, "fail", False, "it must be a directory that this user may"),
        (Facts(checkpoints=broken(errno.ENOSPC)), {}, "fail", False, "No space left on device"),
        (Facts(checkpoints=broken(errno.ESTALE)), {}, "fail", True, "Stale file handle"),
        (Facts(checkpoints=broken(errno.EACCES)), {"NODE_RANK": "1"}, "warn", None, "Permission denied"),
        (
            Facts(checkpoints=Directory("/c", free=GIB // 2)),
            {},
            "warn",
            None,
            "512 MiB left, and checkpoints may take 1 GiB",
        ),
        (
            Facts(checkpoints=ROOM, newest_checkpoint=30 * GIB),
            {},
            "warn",
            None,
            "50 GiB left, and two checkpoints take 60",
        ),
        (Facts(killed_together=True), {"DDPJOB_IN_PLACE_RESTARTS": "3"}, "ok", None, "the kernel kills all of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_amiss_on_a_machine_is_said_with_what_to_do(
    facts: Facts, env: dict[str, str], level: str, said: str, *, retry: bool | None
) -> None:
    findings = check_machine(env, facts)
    assert [finding.level for finding in findings] == [level], findings
    assert said in findings[0].message
    assert retry in {None, findings[0].retry}


@pytest.mark.parametrize(
    ("facts", "env"),
    [
        (Facts(), {}),
        (Facts(killed_together=True), {"DDPJOB_IN_PLACE_RESTARTS": "0"}),
        (Facts(killed_together=True), {"DDPJOB_IN_PLACE_RESTARTS": "3", "NODE_RANK": "1"}),
        (Facts(SHM, 1024, ROOM, 10 * GIB), {"WORLD_SIZE": "64"}),
        (Facts(SHM, 1024, Directory("/c", free=MIB), MIB // 4), {}),
        (Facts(SHM, 1024, Directory("/c", free=MIB)), {"NODE_RANK": "3"}),
    ],
    ids=[
        "nothing to be seen",
        "killed together, but never restarted in place",
        "killed together, and another node says so",
        "plenty",
        "small checkpoints",
        "a node that writes none has no room for them",
    ],
)
def test_nothing_is_said_of_a_machine_that_will_do(facts: Facts, env: dict[str, str]) -> None:
    assert check_machine(env, facts) == []


def test_a_look_leaves_nothing_but_the_checkpoint_directory(tmp_path: Path) -> None:
    facts = inspect_machine({"DDPJOB_CHECKPOINT_DIR": str(tmp_path / "new" / "checkpoints")})
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "checkpoints"]
    assert facts.checkpoints is not None
    assert facts.checkpoints.error == 0
    assert 0 < facts.checkpoints.free <= facts.checkpoints.total
    assert facts.newest_checkpoint is None


def test_no_directory_is_made_for_checkpoints_in_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = inspect_machine({"DDPJOB_CHECKPOINT_DIR": "s3://bucket/saved"})
    assert (facts.checkpoints, facts.newest_checkpoint) == (None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "check", "place"),
    [
        ("/mnt/saved", "checkpoints", "/mnt/saved"),
        ("s3://user:secret@bucket/saved", "sharedMemory", "/dev/shm"),
        ("", "sharedMemory", "/dev/shm"),
    ],
)
def test_a_file_system_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, address: str, check: str, place: str
) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.01)
    answers = threading.Event()
    monkeypatch.setattr(running, "inspect_machine", lambda _: answers.wait())
    (found,) = asyncio.run(running.preflight({"DDPJOB_CHECKPOINT_DIR": address}, Cold(), None, 0))
    answers.set()
    assert (found.check, found.level) == (check, Level.FAIL)
    assert found.message == f"the file system of {place} has not answered for 0 s: have it looked at"


def test_the_open_files_that_are_looked_at_are_the_ranks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "FOUND", (256, 4096))
    assert inspect_machine({}).open_files == 256, "and not what the supervisor has taken for itself"


def test_the_newest_checkpoint_as_a_resume_finds_it_tells_how_much_room_one_takes(tmp_path: Path) -> None:
    def newest() -> int | None:
        return inspect_machine({"DDPJOB_CHECKPOINT_DIR": str(tmp_path)}).newest_checkpoint

    for theirs in ("step-00000001", "step-99999999", "stalls"):
        (tmp_path / theirs).mkdir()
        (tmp_path / theirs / "model.safetensors").write_bytes(b"x" * 5000)
    os.mkfifo(tmp_path / "step-00000001" / "manifest.json")
    assert newest() is None
    for step, end, size in ((99_999_998, "", 100), (100_000_000, "", 300), (200_000_000, ".broken", 700)):
        ours = tmp_path / f"step-{step:08}{end}"
        ours.mkdir()
        (ours / "manifest.json").write_bytes(encoded(Manifest(step, 1, 0, 1, 1, "uid", (1,), size=size)))
    assert newest() == 300


@pytest.mark.parametrize(
    ("path", "number"), [("file/below", errno.ENOTDIR), ("/proc/no", errno.ENOENT)], ids=["no directory", "no way"]
)
def test_what_cannot_be_made_or_written_to_is_seen(tmp_path: Path, path: str, number: int) -> None:
    (tmp_path / "file").touch()
    assert directory(tmp_path / path, make=True).error == number


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((100.0, 105.5, 105.5, 101.0), Skew(5.0, 0.5)),
        ((100.0, 95.5, 95.5, 101.0), Skew(-5.0, 0.5)),
        ((100.0, 103.0, 107.0, 104.2), Skew(2.9, 0.1)),
        ((100.0, 100.0, 101.0, 100.5), Skew(0.25, 0.0)),
    ],
    ids=["ahead", "behind", "an answer that took long", "a clock that was set meanwhile"],
)
def test_clocks_are_compared_as_ntp_does(times: tuple[float, float, float, float], expected: Skew) -> None:
    seen = skew(*times)
    assert (seen.ahead, seen.uncertainty) == pytest.approx((expected.ahead, expected.uncertainty))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Skew(0.9, 0.0), None),
        (Skew(5.0, 4.5), None),
        (Skew(2.0, 0.1), "the clock of node 3 is 2.0 s behind that of node 0"),
        (Skew(-900.0, 0.1), "the clock of node 3 is 900.0 s ahead of that of node 0"),
    ],
    ids=["close", "nobody can tell", "behind", "ahead"],
)
def test_a_clock_that_is_certainly_off_is_warned_of_and_never_more(seen: Skew, said: str | None) -> None:
    findings = list(check_clocks(seen, 3))
    assert len(findings) == (said is not None)
    for finding in findings:
        assert finding.level is Level.WARN
        assert finding.message.startswith(said or "")


NO_DRIVER = "Found no NVIDIA driver on your system"
LISTED = {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2,GPU-3,GPU-4"}
SHARED = {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-1"}


@pytest.mark.parametrize(
    ("env", "seen", "retry", "said"),
    [
        (
            {},
            VisibleGpus(0, NO_DRIVER),
            False,
            "needs 1 GPU on each node, one for each process, but PyTorch sees 0 (Found no",
        ),
        ({}, VisibleGpus(0, "Torch not compiled with CUDA enabled"), False, "request as many in the template"),
        ({}, VisibleGpus(0, "CUDA unknown error - this may be due to"), True, "have the node looked at"),
        ({"NPROC_PER_NODE": "4"}, VisibleGpus(2), False, "needs 4 GPUs on each node"),
        ({"NPROC_PER_NODE": "4", "NVIDIA_VISIBLE_DEVICES": "all"}, VisibleGpus(2), False, "or backend gloo"),
        ({"NPROC_PER_NODE": "8", **LISTED}, VisibleGpus(4), False, "use fewer processes per node"),
        (
            {"NPROC_PER_NODE": "4", **LISTED},
            VisibleGpus(3),
            True,
            "this container was given 4: have the node looked at",
        ),
        ({"NPROC_PER_NODE": "2", **SHARED}, VisibleGpus(1), False, "use fewer processes per node, or backend gloo"),
    ],
    ids=[
        "no driver",
        "no CUDA",
        "a driver in trouble",
        "too few",
        "all of too few",
        "asked for too few",
        "one broke",
        "two shares of one",
    ],
)
def test_a_node_needs_a_gpu_for_each_process(
    env: dict[str, str], seen: VisibleGpus, said: str, *, retry: bool
) -> None:
    finding = next(check_gpus(env, seen))
    assert (finding.level, finding.retry) == (Level.FAIL, retry)
    assert said in finding.message


def test_more_gpus_than_processes_are_well() -> None:
    assert list(check_gpus({"NPROC_PER_NODE": "2"}, VisibleGpus(8))) == []


def raising(*errors: Exception) -> Callable[[str, None], object]:
    """A resolver that fails so often, and then knows the name."""
    left = list(errors)

    def look(_host: str, _port: None) -> object:
        if left:
            raise left.pop(0)
        return []

    return look


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


def test_a_name_that_appears_late_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "FIRST_PAUSE", 0.01)
    assert asyncio.run(check_name("job-0.job.default.svc", 30, raising(UNKNOWN, SILENT))) == []


def test_a_name_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(pause: float) -> None:
        pauses.append(pause)

    monkeypatch.setattr(asyncio, "sleep", note)
    asyncio.run(check_name("job-0.job.default.svc", 30, raising(*[UNKNOWN] * 6)))
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


@pytest.mark.parametrize(
    ("error", "retry", "said"),
    [
        (UNKNOWN, True, "job-0.job, cannot be resolved after 0 s (Name or service not known): check that the job's"),
        (SILENT, True, "(Temporary failure in name resolution): "),
        (UnicodeError("label too long"), False, "(label too long)"),
    ],
    ids=["no such name", "no answer", "no name"],
)
def test_a_name_that_never_appears_is_a_failure(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, *, retry: bool
) -> None:
    async def at_once(look: Callable[..., object], *words: object) -> object:
        return look(*words)  # On a busy machine a thread may begin only when it is too late.

    monkeypatch.setattr(names, "in_thread", at_once)
    (finding,) = asyncio.run(check_name("job-0.job", 0.1, raising(error)))
    assert (finding.level, finding.retry, finding.nodes) == (Level.FAIL, retry, (0,))
    assert said in finding.message


def test_a_name_server_that_says_nothing_holds_nobody() -> None:
    never = threading.Event()
    (finding,) = asyncio.run(check_name("job-0.job", 0.05, lambda *_: never.wait()))
    assert finding.retry
    assert "(no answer)" in finding.message


def test_what_a_thread_raises_is_its_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(lambda: 1 // 0))


def test_a_broken_gpu_is_no_fault_of_the_job_and_a_hot_one_a_warning() -> None:
    broken, hot = Gpu(0, lost="GPU is lost"), Gpu(1, slowed=("it is too hot",))
    findings = [*check_health([broken, hot, Gpu(2)])]
    assert [finding.level for finding in findings] == [Level.FAIL, Level.WARN]
    error = verdict(findings)
    assert error is not None
    assert (error.cause, error.exit_code) == ("DeviceFailed", 201)
    never = verdict([*findings, Finding("gpus", Level.FAIL, "no CUDA in the image", retry=False)])
    assert never is not None
    assert (never.cause, never.exit_code) == ("PreflightFailed", 202)


@pytest.mark.parametrize(
    ("env", "checks"),
    [
        ({"DDPJOB_BACKEND": "nccl"}, ["gpus", "health"]),
        ({"DDPJOB_BACKEND": "nccl", "CUDA_VISIBLE_DEVICES": "1"}, ["gpus"]),
        ({"DDPJOB_BACKEND": "gloo"}, []),
        ({}, []),
    ],
    ids=["all GPUs", "one that is well", "CPUs", "a program that says nothing of GPUs"],
)
def test_a_gpu_is_only_looked_at_if_it_is_to_be_used(
    env: dict[str, str], checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    driver.worn_out = True
    nvml = Nvml(driver)
    monkeypatch.setattr(nvidia_driver, "nvml", lambda: nvml)

    async def counted(*_: object) -> list[Finding]:
        return [Finding("gpus", Level.FAIL, "none")]

    monkeypatch.setattr(running, "_count_gpus", counted)
    found = asyncio.run(running.preflight(env, Cold(), None, 0))
    assert sorted(finding.check for finding in found if finding.level is Level.FAIL) == checks
