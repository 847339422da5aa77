"""When a rank's end is its GPU's fault."""

import pytest
from ddpjob_supervisor.gang.device_failures import is_open, judged
from ddpjob_supervisor.gang.messages import End
from ddpjob_supervisor.gpu.signs import Fact

FALLEN = Fact(3, 79, "GPU 3: Xid 79, GPU has fallen off the bus")
CONTAINED = Fact(3, 94, "GPU 3: Xid 94, contained memory error")
FAULT = Fact(3, 31, "GPU 3: Xid 31, memory page fault")


def end(cause: str, message: str, exception: str | None = None) -> End:
    return End(
        3, 134, 0.0, cause, message, exception, waited="NCCL's ALLREDUCE number 7" if cause == "Stalled" else ""
    )


ABORTED = end("Application", "killed by SIGABRT")


@pytest.mark.parametrize(
    ("rank", "is_its_own"),
    [
        (ABORTED, False),
        (end("Application", "ended with exit code 1"), False),
        (end("Application", "CUDA error: unspecified launch failure", "AcceleratorError"), False),
        (end("Application", "CUBLAS_STATUS_EXECUTION_FAILED", "RuntimeError"), False),
        (end("PeerLost", "Connection closed by peer", "PeerLostError"), False),
        (end("Stalled", "it waited for 600 s"), False),
        (end("Application", "bad batch", "ValueError"), True),
        (end("Application", "CUDA out of memory. Tried to allocate 2 GiB", "OutOfMemoryError"), True),
        (end("ConfigError", "no such workload", "ConfigError"), True),
        (end("OutOfMemory", "killed by SIGKILL: the memory limit was reached"), True),
        (end("StorageFull", "no room", "StorageFullError"), True),
        (End(3, 137, 0.0), True),
    ],
    ids=[
        *("a signal", "an exit code without a word", "an error of CUDA's", "one of its libraries"),
        *("a lost peer", "it waited in vain", "an exception", "the GPU's memory was used up"),
        *("a mistake in the configuration", "memory", "storage", "it has not failed"),
    ],
)
def test_a_broken_gpu_explains_what_has_no_explanation_of_its_own(rank: End, *, is_its_own: bool) -> None:
    assert is_open(rank) is not is_its_own


def test_a_broken_gpu_is_the_cause_and_named() -> None:
    found = judged(end("Stalled", "it waited for 600 s"), [FALLEN, FAULT])
    assert (found.cause, found.message, found.waited) == ("DeviceFailed", FALLEN.message, "")
    assert found.exit_code == 134


@pytest.mark.parametrize("fact", [CONTAINED, FAULT])
def test_what_leaves_the_gpu_well_is_told_with_the_cause(fact: Fact) -> None:
    found = judged(ABORTED, [fact])
    assert (found.cause, found.message) == ("Application", f"killed by SIGABRT; {fact.message}")


def test_what_cuda_calls_broken_is_told_with_the_gpu() -> None:
    said = end("DeviceFailed", "uncorrectable ECC error encountered")
    assert judged(said, [FALLEN]).message == f"{said.message}; {FALLEN.message}"


def test_without_a_fact_all_stays_as_it_is() -> None:
    assert judged(ABORTED, []) == ABORTED
