"""What is understood of NCCL's words, in lines that real processes have printed."""

import pytest
from ddpjob_rank.failure.device_words import broken_device
from ddpjob_supervisor.gpu.nccl_words import Ending, NcclWords

from .transcripts import transcript


def heard(*lines: str) -> NcclWords:
    words = NcclWords()
    for line in lines:
        words.hear(line)
    return words


WAITED = "it waited in NCCL's ALLREDUCE number 460631 for 600 s"
ECC = "CUDA error: uncorrectable ECC error encountered"
IN_NCCL = "ncclUnhandledCudaError: Call to CUDA function failed.; Cuda failure"


@pytest.mark.parametrize(
    ("version", "said", "begun", "done"),
    [
        ("1", "it waited in NCCL's ALLREDUCE number 469508 for 1802 s", {}, {}),
        (
            "2.4",
            "it waited in NCCL's _REDUCE_SCATTER_BASE number 7753 for 600 s",
            *({"1 nccl": 7755}, {"1 nccl": 7752}),
        ),
        ("2.5", "it waited in NCCL's ALLREDUCE number 808 for 600 s", {"0 nccl": 811}, {"0 nccl": 807}),
        ("2.7", WAITED, {"0 nccl": 460631}, {"0 nccl": 460630}),
    ],
)
def test_a_collective_that_took_too_long_is_named_with_how_many_had_begun(
    version: str, said: str, begun: dict[str, int], done: dict[str, int]
) -> None:
    words = heard(*transcript(f"timeout-torch-{version}"))
    assert (words.ending, words.said, words.begun, words.done) == (Ending.TIMEOUT, said, begun, done)


def test_words_behind_a_progress_bar_are_heard() -> None:
    bar = "Epoch 10/10: 240it [05:55,  1.47s/it, loss=5.46]"
    assert heard(bar + transcript("timeout-torch-2.7")[0]).waited == "NCCL's ALLREDUCE number 460631"


ANOTHERS = "the NCCL watchdog of another rank gave up, and signalled this rank"

WORDS_OF_2_4 = (
    "ProcessGroupNCCL.cpp [PG 0 Rank 1] Received a global dump signal from rank 0, and will start to dump the debug",
    "ProcessGroupNCCL's watchdog detected a dump signal from rank 0",
)
"""Put together from what stands in the library of PyTorch 2.4.1: no public log was found that has them."""


@pytest.mark.parametrize(
    ("lines", "ending", "said", "begun"),
    [
        (transcript("timeout-of-another-rank"), Ending.SIGNALLED, ANOTHERS, {"0 nccl": 1261}),
        (transcript("timeout-of-another-rank-torch-2.7"), Ending.SIGNALLED, ANOTHERS, {"0 nccl": 136}),
        (transcript("ended-after-anothers-signal"), Ending.SIGNALLED, ANOTHERS, {"0 nccl": 59957}),
        (WORDS_OF_2_4[:1], Ending.SIGNALLED, ANOTHERS, {}),
        (WORDS_OF_2_4[1:], Ending.SIGNALLED, ANOTHERS, {}),
        (
            transcript("ended-after-its-own-signal"),
            *(
                Ending.TIMEOUT,
                "NCCL's watchdog ended the process, due to collective timeout or exception",
                {"0 nccl": 59998},
            ),
        ),
        (
            transcript("ended-as-hung-torch-2.5"),
            *(Ending.TIMEOUT, "NCCL's watchdog ended the process, due to ProcessGroupNCCL watchdog hang", {}),
        ),
    ],
)
def test_a_rank_that_the_heartbeat_monitor_ends_has_lost_a_peer_or_waited(
    lines: list[str], ending: Ending, said: str, begun: dict[str, int]
) -> None:
    words = heard(*lines)
    assert (words.ending, words.said, words.begun) == (ending, said, begun)


def test_what_the_library_of_pytorch_2_15_says_for_its_other_backend_is_a_wait() -> None:
    assert heard("Watchdog caught collective operation timeout: NCCL operation timed out").ending is Ending.TIMEOUT


@pytest.mark.parametrize("how", ["raised", "aborted"])
def test_a_peer_that_is_gone_is_a_lost_peer_with_the_explanation_of_nccl(how: str) -> None:
    lines = transcript(f"remote-error-{how}")
    words = heard(*lines)
    assert words.ending is Ending.PEER
    assert words.said.startswith("NCCL lost a peer: ")
    assert words.said.endswith(f"; {lines[-1]}")


SYSTEM = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. "
INTERNAL = "ncclInternalError: Internal check failed."
NO_ROUTE = "socketStartConnect: Connect to 192.168.19.14<52822> failed : No route to host"
NO_SHM = "Error while creating shared memory segment /dev/shm/nccl-7FXaaA (size 33030528)"


@pytest.mark.parametrize(
    ("result", "explanation", "ending"),
    [
        (SYSTEM, NO_ROUTE, Ending.PEER),
        (SYSTEM, "", Ending.PEER),
        (SYSTEM, NO_SHM, Ending.OTHER),
        (INTERNAL, "Socket recv failed while polling for opId=0x7f22ff731e10", Ending.PEER),
        (INTERNAL, "Attribute busid of node nic not found", Ending.OTHER),
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Duplicate GPU", Ending.OTHER),
    ],
)
def test_whose_fault_an_error_of_nccl_is_depends_on_its_explanation(
    result: str, explanation: str, ending: Ending
) -> None:
    words = heard(result, "Last error:", explanation)
    assert (words.ending, words.said) == (ending, "; ".join(filter(None, (result.strip(), explanation))))


@pytest.mark.parametrize(
    ("lines", "ending", "said"),
    [
        (transcript("ecc"), Ending.DEVICE, ECC),
        (transcript("cuda-unknown-error"), Ending.OTHER, "CUDA error: unknown error"),
        (transcript("unhandled-cuda-error"), Ending.OTHER, f"{IN_NCCL} 2 'out of memory'"),
        (
            [*transcript("unhandled-cuda-error")[:-1], "Cuda failure 214 'uncorrectable ECC error encountered'"],
            *(Ending.DEVICE, f"{IN_NCCL} 214 'uncorrectable ECC error encountered'"),
        ),
        (transcript("timeout-torch-2.7") + transcript("ecc"), Ending.DEVICE, ECC),
        (transcript("timeout-torch-2.7") + transcript("remote-error-aborted"), Ending.TIMEOUT, WAITED),
        (transcript("timeout-of-another-rank") + transcript("timeout-torch-2.7"), Ending.TIMEOUT, WAITED),
        (transcript("timeout-torch-2.7") + transcript("ended-after-anothers-signal"), Ending.TIMEOUT, WAITED),
    ],
    ids=[
        "memory of the GPU is broken",
        "an error of CUDA that may be the program's",
        "an error of CUDA within NCCL",
        "a broken GPU within NCCL",
        "a broken GPU explains a wait",
        "what comes after a wait follows from it",
        "its own wait says more than another rank's",
        "another rank's wait says no more than its own",
    ],
)
def test_the_first_word_counts_unless_a_gpu_is_broken(lines: list[str], ending: Ending, said: str) -> None:
    words = heard(*lines)
    assert (words.ending, words.said) == (ending, said)


def test_transports_are_known_where_nccl_tells_them() -> None:
    assert heard(*transcript("transport-infiniband")).ways == {"NET/IB": 2, "P2P": 1}
    assert heard(*transcript("transport-sockets")).network == "Socket"


def test_a_switch_that_reduces_is_a_transport() -> None:
    """As NCCL's src/transport/coll_net.cc writes it."""
    line = "a:1:2 [0] NCCL INFO CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA"
    assert heard(line).ways == {"COLLNET/SHARP": 1}


@pytest.mark.parametrize(
    "line",
    [
        "loss=0.3 step=17",
        "NCCL version 2.26.2+cuda12.2",
        "frame #2: c10d::ProcessGroupNCCL::watchdogHandler() + 0xc80 (0x7f92e75707f0 in libtorch_cuda.so)",
        "Last error:",
    ],
)
def test_other_lines_end_nothing(line: str) -> None:
    assert heard(line, line) == NcclWords(_explains=line == "Last error:")


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("CUDA error: uncorrectable ECC error encountered\nCompile with `TORCH_USE_CUDA_DSA`", True),
        ("CUDA error: uncorrectable NVLink error detected during the execution", True),
        ("GPU is lost.  Reboot the system to recover this GPU", True),
        ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.", True),
        ("CUDA error: unspecified launch failure", False),
        ("CUDA error: an illegal memory access was encountered", False),
        ("CUDA error: unknown error", False),
        ("CUDA error: device-side assert triggered", False),
        ("CUDA out of memory. Tried to allocate 20.00 MiB", False),
    ],
)
def test_only_what_no_program_can_cause_means_a_broken_gpu(text: str, broken: bool) -> None:  # noqa: FBT001
    assert (broken_device(text) is not None) is broken
