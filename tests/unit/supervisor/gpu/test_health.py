"""What the driver says of GPUs, and what of it means that one is broken.

No machine here has a GPU: the driver is made up, with the constants and errors of NVIDIA's own Python module.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from ddpjob_supervisor.gpu import nvml as module
from ddpjob_supervisor.gpu.health import Gpu, broke_since, nodes_of, problem_now, warning_now
from ddpjob_supervisor.gpu.nvml import Nvml

WELL = Gpu(0, "GPU-a", "0000:17:00.0")
OTHER = Gpu(1, "GPU-b", "0000:98:00.0")
LOST = Gpu(0, lost="GPU is lost")


@pytest.mark.parametrize(
    ("gpu", "problem", "warning"),
    [
        (WELL, None, None),
        (LOST, "GPU 0 does not answer: GPU is lost", None),
        (replace(WELL, worn_out=True), "GPU 0 has broken memory that can no longer be replaced", None),
        (
            replace(WELL, slowed=("it is too hot",)),
            None,
            "GPU 0 is slowed down: it is too hot: have the machine looked at",
        ),
        (
            replace(WELL, uncorrected=2, to_reset=True),
            *(
                None,
                "GPU 0 has had 2 ECC errors that could not be corrected and has broken memory that is replaced at ",
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_gpu_ends_a_job_or_is_a_warning(
    gpu: Gpu, problem: str | None, warning: str | None
) -> None:
    assert problem_now(gpu) == problem
    assert str(warning_now(gpu)).startswith(str(warning))


@pytest.mark.parametrize(
    ("before", "now", "xids", "broke"),
    [
        ([WELL, OTHER], [WELL, OTHER], [], None),
        ([WELL], [replace(WELL, uncorrected=1)], [], "GPU 0: uncorrectable ECC error"),
        ([replace(WELL, uncorrected=1)], [replace(WELL, uncorrected=1)], [], None),
        ([WELL, OTHER], [LOST, OTHER], [], "GPU 0 does not answer: GPU is lost"),
        ([WELL, OTHER], [replace(OTHER, index=0)], [], "GPU 0 is gone"),
        ([replace(WELL, worn_out=True)], [replace(WELL, worn_out=True)], [], None),
        ([WELL], [WELL], [(0, 79)], "GPU 0: Xid 79, GPU has fallen off the bus"),
        ([WELL], [WELL], [(0, 31), (0, 13), (0, 43), (0, 94)], None),
        ([WELL], [replace(WELL, slowed=("it is too hot",))], [], None),
    ],
    ids=[
        "all is well",
        "an error more than before",
        "an error from before",
        "it does not answer any more",
        "it is gone",
        "what was broken before did not break this attempt",
        "an Xid of the hardware",
        "Xids that a program can cause",
        "heat breaks nothing",
    ],
)
def test_only_what_broke_meanwhile_explains_a_failure(
    before: list[Gpu], now: list[Gpu], xids: list[tuple[int, int]], broke: str | None
) -> None:
    assert broke_since(before, now, xids) == broke


@pytest.mark.parametrize(
    ("env", "nodes"),
    [
        ({}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1, None]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-x,7"}, [None, None]),
    ],
)
def test_each_process_has_the_node_of_the_gpu_with_its_local_rank(
    env: dict[str, str], nodes: list[int | None], tmp_path: Path
) -> None:
    for gpu, node in ((WELL, "0"), (OTHER, "1")):
        (tmp_path / "sys/bus/pci/devices" / gpu.pci).mkdir(parents=True)
        (tmp_path / "sys/bus/pci/devices" / gpu.pci / "numa_node").write_text(f"{node}\n")
    assert nodes_of([WELL, OTHER], env, 2, tmp_path) == nodes


def test_a_node_that_the_firmware_does_not_tell_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices" / WELL.pci).mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices" / WELL.pci / "numa_node").write_text("-1\n")
    assert nodes_of([WELL], {}, 1, tmp_path) == [None]
    assert nodes_of([], {}, 2, tmp_path) == [None, None]


class Driver:
    """A driver of two GPUs. Its first GPU has ECC errors, and cannot say anything of its clocks."""

    def __init__(self) -> None:
        self.errors = 0
        self.events: list[tuple[int, int]] = []
        self.lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if self.lost and index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=f"00000000:{handle}A:00.0".encode())

    def nvmlDeviceGetRemappedRows(self, _: int) -> tuple[int, int, int, int]:  # noqa: N802
        return 0, 0, 1, 0

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:  # noqa: N802
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return self.errors if handle == 0 else 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:  # noqa: N802
        if handle == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(pynvml.nvmlClocksThrottleReasonHwThermalSlowdown)

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, *_: object) -> None:  # noqa: N802
        pass

    def nvmlEventSetWait_v2(self, _: object, milliseconds: int) -> SimpleNamespace:  # noqa: N802
        assert milliseconds == 0, "nobody waits"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        device, xid = self.events.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        return handle


def test_the_driver_is_asked_for_all_that_it_can_tell() -> None:
    first, second = Nvml(Driver()).before
    assert first == Gpu(0, "GPU-0", "0000:0a:00.0", to_reset=True)
    assert second == Gpu(1, "GPU-1", "0000:1a:00.0", to_reset=True, slowed=("it is too hot",))


def test_what_breaks_is_told_once_it_has_broken() -> None:
    driver = Driver()
    driver.errors = 1
    nvml = Nvml(driver)
    assert nvml.broken() is None, "that was before"
    driver.events = [(1, 31), (1, 48)]
    assert nvml.broken() == "GPU 1: Xid 48, double-bit ECC error"
    driver.errors = 2
    assert nvml.broken() == "GPU 0: uncorrectable ECC error"
    driver.lost, driver.errors = True, 1
    assert nvml.broken() == "GPU 1 does not answer: GPU is lost"


def test_where_there_is_no_driver_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIBRARY", "libnone.so.1")
    module.nvml.cache_clear()
    assert module.nvml() is None
    module.nvml.cache_clear()
