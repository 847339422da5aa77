"""Asks NVIDIA's driver about this container's GPUs, where it is: by NVML, which needs no CUDA context and no torch.

A broken GPU may keep its driver from answering: call these in a thread that nobody has to wait for.
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
"""Part of the driver: where it does not load, there is no GPU of NVIDIA's in this container."""

HOT = "it is too hot"


class Nvml:
    """The driver's library, and what has happened to the GPUs since an attempt began. For one thread at a time."""

    def __init__(self, library: Any) -> None:
        """`library` is the module `pynvml`, ready to be asked.

        Raises:
            NVMLError: The driver does not answer.
        """
        self._library = library
        self._gone = {library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_RESET_REQUIRED}
        """The only errors that say that a GPU is of no use: others are about the question, or who asks it."""
        self._xids: list[tuple[int | None, int]] = []
        self._events: Any = None
        self.before = self.look()
        """The GPUs as they were when the attempt began."""
        self._listen()

    def look(self) -> list[Gpu]:
        """All GPUs of this container, as they are now.

        Raises:
            NVMLError: The driver does not answer.
        """
        return [self._gpu(index) for index in range(self._library.nvmlDeviceGetCount())]

    def begin(self) -> list[Gpu]:
        """Begins an attempt: what has happened before is none of its. Returns the GPUs as they are."""
        self._hear()
        self._xids = []
        with suppress(self._library.NVMLError):
            self.before = self.look()
        return self.before

    def facts(self) -> list[Fact]:
        """What has happened to the GPUs in this attempt, the gravest first; the same for all who ask."""
        self._hear()
        try:
            return happened(self.before, self.look(), self._xids)
        except self._library.NVMLError as error:
            broken = Fact(None, Counter.LOST, f"the driver of the GPUs does not answer: {error}")
            return [*([broken] if error.value in self._gone else []), *happened((), (), self._xids)]

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
            nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "its power supply asks for it",
        }
        return Gpu(
            index,
            _text(uuid),
            _text(pci).lower()[-12:],
            uncorrected=self._asked(nvml.nvmlDeviceGetTotalEccErrors, 0, handle, *kinds),
            worn_out=bool(failure),
            to_reset=bool(pending),
            slowed=tuple(dict.fromkeys(words for bit, words in slow.items() if reasons & bit)),
        )

    def _asked(self, question: Callable[..., T], unknown: T, *arguments: object) -> T:
        """Not every GPU can answer every question."""
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return unknown

    def _listen(self) -> None:
        nvml = self._library
        with suppress(nvml.NVMLError):
            self._events = nvml.nvmlEventSetCreate()
        for gpu in self.before if self._events is not None else ():
            with suppress(nvml.NVMLError):  # Some GPUs, and parts of GPUs, report no events; others beside them do.
                handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _hear(self) -> None:
        """Notes the errors that the driver has reported: it tells each only once."""
        nvml = self._library
        with suppress(nvml.NVMLError):  # No more of them: a timeout.
            while self._events is not None:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                index = self._asked(nvml.nvmlDeviceGetIndex, None, event.device)  # One that is lost may not know it.
                self._xids.append((index, event.eventData))


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
