"""CUDA's messages which mean that a GPU is broken, no matter what the program did. Pure.

They are messages of cudaGetErrorString in CUDA 13.2, and of NVML. Other messages may be the program's fault: an
illegal address, a failed launch ("unspecified launch failure"), memory that is used up.
"""

import re

BROKEN = (
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "hardware stack error",
    "Invalid access of peer GPU memory over nvlink or a hardware error",
    "GPU is lost",
    "GPU has fallen off the bus",
    "GPU requires reset",
)
"""The messages of cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError and
cudaErrorContained; of NVML_ERROR_GPU_IS_LOST; and of the driver's Xid 79 and NVML_ERROR_RESET_REQUIRED."""


def broken_device(text: str) -> str | None:
    """The first message in `text` that means a broken GPU; None if there is none."""
    return next((words for words in BROKEN if words in text), None)


CUDA_ERROR = re.compile(r"CUDA error: .+|CUBLAS_STATUS_\w+|cuDNN error: .+|CUDNN_STATUS_\w+|ncclUnhandledCudaError.*")
"""The beginning of PyTorch's message about a CUDA error. Lines of advice follow, which are the same for every
error."""


def cuda_error(text: str) -> str | None:
    """CUDA's own message in `text`, no matter what caused it; None if there is none."""
    found = CUDA_ERROR.search(text)
    return found[0].strip() if found else None


OUT_OF_MEMORY = re.compile(
    r"\b(?P<what>\w{1,40} out of memory)\. Tried to allocate (?P<asked>[\d.]{1,20} \w{1,20})"
    r"(?:[^(]{0,400}?(?P<gpu>GPU \d{1,5}) has a total capaci?ty of (?P<total>[\d.]{1,20} \w{1,20})"
    r" of which (?P<free>[\d.]{1,20} \w{1,20}) is free"
    r"|.{0,40}?\((?P<old_gpu>GPU \d{1,5}); (?P<old_total>[\d.]{1,20} \w{1,20}) total capacity;"
    r".{0,200}? (?P<old_free>[\d.]{1,20} \w{1,20}) free)"
)
"""PyTorch's message when its allocator finds no memory on a GPU: first its form since PyTorch 2.1, then the older
form."""


def out_of_memory(text: str) -> str | None:
    """How much memory was requested on a GPU and how much was free, as a short sentence; None if `text` lacks this.

    PyTorch's own message has several hundred characters, which is too long for most places where the sentence is
    shown.
    """
    found = OUT_OF_MEMORY.search(text)
    if found is None:
        return None
    gpu, total, free = (found[name] or found[f"old_{name}"] for name in ("gpu", "total", "free"))
    return f"{found['what']}: {found['asked']} asked for, {free} of {total} free on {gpu}"
