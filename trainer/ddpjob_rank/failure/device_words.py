"""CUDA's sentences for a GPU that does not work, whatever the program did. Pure.

They are those of cudaGetErrorString in CUDA 13.2, and of NVML. Others may be the program's fault: an illegal address,
a failed launch ("unspecified launch failure"), memory that is used up.
"""

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
