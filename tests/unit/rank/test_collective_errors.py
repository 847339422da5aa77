"""Whose fault the errors of collectives are, by texts that PyTorch and NCCL have printed."""

import pytest
from ddpjob_rank.errors import ConfigError, DeviceFailedError, PeerLostError, TrainerError
from ddpjob_rank.failure import traps
from ddpjob_rank.failure.failure_report import known_failure, report_of


class DistError(RuntimeError):
    """Named as the base of torch.distributed's errors."""


class DistBackendError(DistError):
    pass


class DistNetworkError(DistError):
    pass


class DistStoreError(DistError):
    pass


class QueueEmptyError(DistStoreError):
    pass


def nccl(result: str, interpretation: str, explanation: str, version: str = "2.21.5") -> DistBackendError:
    """As getNcclErrorDetailStr in torch/csrc/distributed/c10d words it, with the frames that may follow."""
    return DistBackendError(
        f"NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, {result}, NCCL version {version}\n"
        f"{interpretation}\nLast error:\n{explanation}\n"
        "Exception raised from getNCCLComm at ../c10d/ProcessGroupNCCL.cpp:1691 (most recent call first):\n"
        "frame #0: c10::Error::Error() + 0x96 (0x7f libc10)"
    )


SYSTEM = (
    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
)
INTERNAL = (
    "internal error - please report this issue to the NCCL developers",
    "ncclInternalError: Internal check failed.",
)
USAGE = (
    "invalid usage (run with NCCL_DEBUG=WARN for details)",
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
)
ARGUMENT = (
    "invalid argument (run with NCCL_DEBUG=WARN for details)",
    "ncclInvalidArgument: Invalid value for an argument.",
)
CUDA = (
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
)
REMOTE = (
    "remote process exited or there was a network error",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
)
DUPLICATE = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000"
"""NVIDIA/nccl#1241, verl-project/verl#161, and many others."""
NOT_ALLOWED = (
    "The server socket has failed to listen on any local network address. port: 80, useIpv6: false, code: -13, name:"
    " EACCES, message: permission denied"
)

OWN = {
    "two ranks on one GPU": (nccl(*USAGE, DUPLICATE), f"ncclInvalidUsage: {DUPLICATE}"),
    "a buffer that is none (NVIDIA/nccl#1558)": (
        nccl(*ARGUMENT, "Broadcast : sendbuff (nil) is not a valid pointer"),
        "ncclInvalidArgument: Broadcast : sendbuff (nil) is not a valid pointer",
    ),
    "two NCCLs in one process (openchat#121)": (
        DistBackendError(
            "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, invalid argument, NCCL version 2.14.3\n"
            "ncclInvalidArgument: Invalid value for an argument.\n"
            "Last error:\nInvalid config blocking attribute value -2147483648"
        ),
        "ncclInvalidArgument: Invalid config blocking attribute value -2147483648",
    ),
    "a usage without an explanation": (
        nccl(*USAGE, ""),
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    ),
    "a usage, before PyTorch explained NCCL's results (pytorch/examples#484)": (
        RuntimeError("NCCL error in: /pytorch/torch/lib/c10d/../c10d/NCCLUtils.hpp:39, invalid argument"),
        "ncclInvalidArgument: invalid argument",
    ),
    "CUDA within NCCL (NVIDIA/nccl#1410)": (
        nccl(*CUDA, "Cuda failure 1 'invalid argument'", "2.20.5"),
        "ncclUnhandledCudaError: Cuda failure 1 'invalid argument'",
    ),
    "the memory that ranks of one machine share": (
        nccl(*SYSTEM, "Error while creating shared memory segment /dev/shm/nccl-7FXaaA (size 33030528)"),
        "ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-7FXaaA (size 33030528)",
    ),
    "no network": (
        nccl(*INTERNAL, "Bootstrap : no socket interface found"),
        "ncclInternalError: Bootstrap : no socket interface found",
    ),
    "a check within NCCL (NVIDIA/nccl#1247)": (
        nccl(*INTERNAL, "Attribute busid of node nic not found", "2.18.6"),
        "ncclInternalError: Attribute busid of node nic not found",
    ),
    "a check without an explanation (vllm#10453)": (
        DistBackendError(
            f"NCCL error in: x.hpp:317, {INTERNAL[0]}, NCCL version 2.21.5\n{INTERNAL[1]}\nLast error:\n"
        ),
        "ncclInternalError: Internal check failed.",
    ),
    "an empty queue": (QueueEmptyError("queue is empty"), "queue is empty"),
    "a port that it may not have": (DistNetworkError(NOT_ALLOWED), NOT_ALLOWED),
    "a backend that cannot do this": (
        DistBackendError("Backend gloo does not support reduce_scatter"),
        "Backend gloo does not support reduce_scatter",
    ),
}


@pytest.mark.parametrize(("error", "message"), OWN.values(), ids=OWN)
def test_an_error_that_is_no_peers_fault_is_told_in_its_own_words(error: Exception, message: str) -> None:
    assert known_failure(error) is None
    assert report_of(error, 0, None).message == message


HOLIDAY = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error [127.0.0.1]:14730: Connection"
    " reset by peer. This is typically caused by a remote worker hanging or bugs in the application. Check the logs"
    " of the remote worker before reporting an error. GLHF! 🏖️"
)
"""gloo's text in PyTorch 2.15."""
NO_ID = (
    "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0',"
    " but store->get('0') got error: Socket Timeout"
)
"""RUCAIBox/RecBole#2069."""
NO_MEETING = "The client socket has timed out after 2000ms while trying to connect to (127.0.0.1, 49143)"

LOST = {
    "gloo": (
        RuntimeError(
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [10.0.0.7]:4711"
        ),
        "Connection closed by peer [10.0.0.7]:4711",
    ),
    "gloo with advice": (RuntimeError(HOLIDAY), "Read error [127.0.0.1]:14730: Connection reset by peer"),
    "NCCL": (nccl(*REMOTE, ""), REMOTE[1]),
    "NCCL with the peer's address (NVIDIA/nccl-tests#166)": (
        nccl(*REMOTE, "socketProgress: Connection closed by remote peer node1<57557>"),
        "ncclRemoteError: socketProgress: Connection closed by remote peer node1<57557>",
    ),
    "NCCL with an address that does not answer (hkproj/pytorch-transformer-distributed#1)": (
        nccl(*SYSTEM, "socketStartConnect: Connect to 192.168.19.14<52822> failed : No route to host"),
        "ncclSystemError: socketStartConnect: Connect to 192.168.19.14<52822> failed : No route to host",
    ),
    "NCCL without an explanation (pytorch/pytorch#149984)": (nccl(*SYSTEM, ""), SYSTEM[1].strip()),
    "NCCL 2.18, which calls it internal (NVIDIA/nccl#1546)": (
        nccl(*INTERNAL, "Socket recv failed while polling for opId=0x7f22ff731e10", "2.18.1"),
        "ncclInternalError: Socket recv failed while polling for opId=0x7f22ff731e10",
    ),
    "an aborted communicator": (
        DistBackendError("NCCL communicator was aborted on rank 3."),
        "NCCL communicator was aborted on rank 3.",
    ),
    "rank 0 did not come to the communicator": (DistBackendError(NO_ID), NO_ID),
    "a barrier that names who did not come": (
        RuntimeError("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1000 ms"),
        "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1000 ms",
    ),
    "the store's address": (DistNetworkError(f"{NO_MEETING}."), f"{NO_MEETING}."),
    "a key that nobody wrote": (
        DistStoreError("wait timeout after 2000ms, keys: /default_pg/0//cuda//0"),
        "wait timeout after 2000ms, keys: /default_pg/0//cuda//0",
    ),
    "clients that did not come": (
        DistStoreError("Timed out after 3 seconds waiting for clients. 1/2 clients joined."),
        "Timed out after 3 seconds waiting for clients. 1/2 clients joined.",
    ),
    "a line that tells": (
        RuntimeError("Store is gone\nConnection closed by peer\nframe #0: c10::Error::Error()"),
        "Connection closed by peer",
    ),
    "none that does": (DistNetworkError("It is over\nframe #0: clone + 0x3f"), "It is over"),
    "much of it": (RuntimeError("Broken pipe " + "x" * 500), "Broken pipe " + "x" * 188),
    "nothing": (DistNetworkError(""), ""),
}


@pytest.mark.parametrize(("error", "words"), LOST.values(), ids=LOST)
def test_the_loss_of_a_peer_is_told_in_one_short_sentence_that_says_which(error: Exception, words: str) -> None:
    lost = known_failure(error, " in training at step 3")
    assert isinstance(lost, PeerLostError)
    assert str(lost) == f"lost a peer in training at step 3: {words}"


def test_a_broken_gpu_is_broken_also_in_nccls_words() -> None:
    error = nccl(*CUDA, "Cuda failure 214 'uncorrectable ECC error encountered'")
    assert isinstance(known_failure(error), DeviceFailedError)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (nccl(*USAGE, DUPLICATE), ConfigError, "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"),
        (
            nccl(*SYSTEM, "Error while creating shared memory segment /dev/shm/nccl-7FXaaA"),
            TrainerError,
            "--shm-size",
        ),
    ],
    ids=["two ranks on one GPU", "no shared memory"],
)
def test_what_the_user_can_change_is_said(error: Exception, kind: type[TrainerError], told: str) -> None:
    known = traps.known_mistake(error)
    assert type(known) is kind
    assert told in str(known)


ASKED = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is"
    " free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory"
    " 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated."
)
ASKED_BEFORE_2_1 = (
    "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated;"
    " 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)"
)
"""pytorch/pytorch#59778."""
ASKED_IN_2_1 = (
    "CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of which 0 bytes is free."
    " Of the allocated memory 2.93 GiB is allocated by PyTorch"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ASKED, "CUDA out of memory: 22.78 GiB asked for, 12.73 GiB of 31.47 GiB free on GPU 0"),
        (ASKED_BEFORE_2_1, "CUDA out of memory: 2.26 GiB asked for, 3.03 GiB of 6.00 GiB free on GPU 0"),
        (ASKED_IN_2_1, "CUDA out of memory: 1.70 GiB asked for, 0 bytes of 6.00 GiB free on GPU 0"),
    ],
    ids=["PyTorch 2.5", "before 2.1", "2.1"],
)
def test_a_gpu_without_memory_is_told_with_how_much_was_asked_for_and_free(text: str, message: str) -> None:
    assert report_of(RuntimeError(text), 0, None).message == message
