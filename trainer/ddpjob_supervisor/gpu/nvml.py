"""Queries NVIDIA's driver about this container's GPUs through NVML, which needs neither a CUDA context nor torch.

If a GPU is broken, the driver may never answer: call these functions in a thread that nobody has to wait for.
"""

import ctypes
import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from .health import Gpu
from .signs import Counter, Fact, happened

T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
"""A library of NVIDIA's driver. If it cannot be loaded, this container has no NVIDIA GPU."""

HOT = "it is too hot"


class Nvml:
    """Reads the GPUs from the driver, and records what happens to them in an attempt. For one thread at a time."""

    def __init__(self, library: Any) -> None:
        """`library` is the module `pynvml` after `nvmlInit`.

        Raises:
            NVMLError: The driver does not answer.
        """
        self._library = library
        self._gone = {library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_RESET_REQUIRED}
        """The only errors that mean that a GPU is unusable. Any other error only means that the query failed."""
        self._xids: list[tuple[int | None, int]] = []
        self._events: Any = None
        self.before = self.look()
        """The state of the GPUs when the attempt began."""
        self._listen()

    def look(self) -> list[Gpu]:
        """The present state of all GPUs of this container.

        Raises:
            NVMLError: The driver does not answer.
        """
        return [self._gpu(index) for index in range(self._library.nvmlDeviceGetCount())]

    def begin(self) -> list[Gpu]:
        """Begins an attempt: discards everything that has happened before. Returns the present state of the GPUs."""
        self._hear()
        self._xids = []
        with suppress(self._library.NVMLError):
            self.before = self.look()
        return self.before

    def facts(self) -> list[Fact]:
        """What has happened to the GPUs in this attempt, the most severe first.

        Repeated calls return the same facts again.
        """
        self._hear()
        try:
            return happened(self.before, self.look(), self._xids)
        except self._library.NVMLError as error:
            lost = Fact(None, Counter.LOST, f"the driver of the GPUs does not answer: {error}")
            return [*([lost] if error.value in self._gone else []), *happened((), (), self._xids)]

    def _gpu(self, index: int) -> Gpu:
        nvml = self._library
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, pci = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetPciInfo(handle).busId
        except nvml.NVMLError as error:
            return Gpu(index, lost=str(error) if error.value in self._gone else "")
        _, _, pending, failure = self._asked(nvml.nvmlDeviceGetRemappedRows, (0, 0, 0, 0), handle)
        kinds = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        reasons = self._asked(nvml.nvmlDeviceGetCurrentClocksEventReasons, 0, handle)
        slow = {
            nvml.nvmlClocksThrottleReasonSwThermalSlowdown: HOT,
            nvml.nvmlClocksThrottleReasonHwThermalSlowdown: HOT,
            nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "its power supply limits it",
        }
        return Gpu(
            index,
            _text(uuid),
            _text(pci).lower()[-12:],
            uncorrected=self._asked(nvml.nvmlDeviceGetTotalEccErrors, 0, handle, *kinds),
            worn_out=bool(failure),
            to_reset=bool(pending),
            slowed=tuple(dict.fromkeys(reason for bit, reason in slow.items() if reasons & bit)),
        )

    def _asked(self, question: Callable[..., T], unknown: T, *arguments: object) -> T:
        """The answer to a query, or `unknown` if this GPU does not support the query."""
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return unknown

    def _listen(self) -> None:
        nvml = self._library
        with suppress(nvml.NVMLError):
            self._events = nvml.nvmlEventSetCreate()
        for gpu in self.before if self._events is not None else ():
            with suppress(nvml.NVMLError):  # A MIG instance or an old GPU reports no events, but the next GPU may.
                handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _hear(self) -> None:
        """Records the errors that the driver reports. The driver reports each error only once."""
        nvml = self._library
        with suppress(nvml.NVMLError):  # When no events are left, a timeout error ends the loop.
            while self._events is not None:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                index = self._asked(nvml.nvmlDeviceGetIndex, None, event.device)  # None if the GPU is lost.
                self._xids.append((index, event.eventData))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@cache
def nvml() -> Nvml | None:
    """Access to the driver, which the first call opens for this process; None if there is no driver that works."""
    try:
        ctypes.CDLL(LIBRARY)
        library: Any = importlib.import_module("pynvml")
    except (OSError, ImportError):
        return None
    with suppress(library.NVMLError):
        library.nvmlInit()
        return Nvml(library)
    return None
