"""CUDA's sentences for a GPU that does not work, whatever the program did. Pure.

They are those of cudaGetErrorString in CUDA 13.2, and of NVML. Others may be the program's fault: an illegal address,
a failed launch ("unspecified launch failure"), memory that is used up.
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
"""cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError, cudaErrorContained;
NVML_ERROR_GPU_IS_LOST; the driver's Xid 79 and NVML_ERROR_RESET_REQUIRED."""


def broken_device(text: str) -> str | None:
    """The sentence in a text that says that a GPU is broken; None if there is none."""
    return next((words for words in BROKEN if words in text), None)


CUDA_ERROR = re.compile(r"CUDA error: .+|CUBLAS_STATUS_\w+|cuDNN error: .+|CUDNN_STATUS_\w+|ncclUnhandledCudaError.*")
"""How PyTorch begins such an error; after that it gives advice in several lines, the same for all."""


def cuda_error(text: str) -> str | None:
    """What CUDA says in a text, whosever fault it is; None: nothing."""
    found = CUDA_ERROR.search(text)
    return found[0].strip() if found else None
