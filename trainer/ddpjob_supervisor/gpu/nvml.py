"""Asks NVIDIA's driver about this container's GPUs, where it is: by NVML, which needs no CUDA context and no torch.

A broken GPU may keep its driver from answering: call these in a thread that nobody has to wait for.
"""

import ctypes
import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from .health import Gpu, broke_since

T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
"""Part of the driver: where it does not load, there is no GPU of NVIDIA's in this container."""


class Nvml:
    """The driver's library, and what has happened to the GPUs since this was made."""

    def __init__(self, library: Any) -> None:
        """`library` is the module `pynvml`, ready to be asked.

        Raises:
            NVMLError: The driver does not answer.
        """
        self._library = library
        self._events = None
        self.before = self.look()
        with suppress(library.NVMLError):  # Some GPUs, and parts of GPUs, report no events.
            self._listen()

    def look(self) -> list[Gpu]:
        """All GPUs of this container, as they are now.

        Raises:
            NVMLError: The driver does not answer.
        """
        return [self._gpu(index) for index in range(self._library.nvmlDeviceGetCount())]

    def broken(self) -> str | None:
        """What has broken since this was made, in a sentence; None: nothing that shows."""
        try:
            now = self.look()
        except self._library.NVMLError as error:
            return f"the driver of the GPUs does not answer: {error}"
        return broke_since(self.before, now, [*self._xids()])

    def _gpu(self, index: int) -> Gpu:
        nvml = self._library
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, pci = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetPciInfo(handle).busId
        except nvml.NVMLError as error:
            return Gpu(index, lost=str(error))
        _, _, pending, failure = self._asked(nvml.nvmlDeviceGetRemappedRows, (0, 0, 0, 0), handle)
        kinds = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        reasons = self._asked(nvml.nvmlDeviceGetCurrentClocksEventReasons, 0, handle)
        slow = {
            nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "it is too hot",
            nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "its power supply asks for it",
        }
        return Gpu(
            index,
            _text(uuid),
            _text(pci).lower()[-12:],
            uncorrected=self._asked(nvml.nvmlDeviceGetTotalEccErrors, 0, handle, *kinds),
            worn_out=bool(failure),
            to_reset=bool(pending),
            slowed=tuple(words for bit, words in slow.items() if reasons & bit),
        )

    def _asked(self, question: Callable[..., T], unknown: T, *arguments: object) -> T:
        """Not every GPU can answer every question."""
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return unknown

    def _listen(self) -> None:
        nvml = self._library
        self._events = nvml.nvmlEventSetCreate()
        for gpu in self.before:
            if not gpu.lost:
                handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _xids(self) -> Iterator[tuple[int, int]]:
        """The errors that the driver has reported since, each with the number of its GPU."""
        nvml = self._library
        with suppress(nvml.NVMLError):  # No more of them: a timeout.
            while self._events is not None:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                yield nvml.nvmlDeviceGetIndex(event.device), event.eventData


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@cache
def nvml() -> Nvml | None:
    """The driver's library of this process, from the first call on; None: there is none, or it does not work."""
    try:
        ctypes.CDLL(LIBRARY)
        library: Any = importlib.import_module("pynvml")
    except (OSError, ImportError):
        return None
    with suppress(library.NVMLError):
        library.nvmlInit()
        return Nvml(library)
    return None
