"""A driver of NVIDIA's that is made up, with the constants and errors of NVIDIA's own Python module.

No machine here has a GPU.
"""

from types import SimpleNamespace
from typing import Any

import pynvml


class Driver:
    """A driver of two GPUs, or of more. Its first cannot say anything of its clocks; the others are too hot."""

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = gpus
        self.errors = 0
        """ECC errors of the first GPU that could not be corrected."""
        self.worn_out = False
        """Whether rows of the first GPU's memory could not be remapped."""
        self.hot = int(pynvml.nvmlClocksThrottleReasonHwThermalSlowdown)
        self.events: list[tuple[int, int]] = []
        """Errors that nobody has heard of yet: the index of a GPU and an Xid."""
        self.silent: dict[int, int] = {}
        """The error that there is instead of an answer about a GPU, by its index."""
        self.eventless: set[int] = set()
        """GPUs that report no events."""
        self.listened_to: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.silent:
            raise pynvml.NVMLError(self.silent[index])
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=f"00000000:{handle}A:00.0".encode())

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:  # noqa: N802
        return 0, 0, 1, int(self.worn_out and handle == 0)

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:  # noqa: N802
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return self.errors if handle == 0 else 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:  # noqa: N802
        if handle == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.hot

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, *_: object) -> None:  # noqa: N802
        if handle in self.eventless:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self.listened_to.append(handle)

    def nvmlEventSetWait_v2(self, _: object, milliseconds: int) -> SimpleNamespace:  # noqa: N802
        assert milliseconds == 0, "nobody waits"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        device, xid = self.events.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        if handle in self.silent:
            raise pynvml.NVMLError(self.silent[handle])
        return handle
