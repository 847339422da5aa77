"""CUDA's messages about a GPU that is broken, whatever the program did. Pure.

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
"""Of cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError, cudaErrorContained;
NVML_ERROR_GPU_IS_LOST; the driver's Xid 79 and NVML_ERROR_RESET_REQUIRED."""


def broken_device(text: str) -> str | None:
    """The first message in `text` that means a broken GPU; None if there is none."""
    return next((words for words in BROKEN if words in text), None)


CUDA_ERROR = re.compile(r"CUDA error: .+|CUBLAS_STATUS_\w+|cuDNN error: .+|CUDNN_STATUS_\w+|ncclUnhandledCudaError.*")
"""The beginning of PyTorch's message about a CUDA error; after it come lines of advice, the same for every error."""


def cuda_error(text: str) -> str | None:
    """CUDA's own message in `text`, whatever its cause; None if there is none."""
    found = CUDA_ERROR.search(text)
    return found[0].strip() if found else None
