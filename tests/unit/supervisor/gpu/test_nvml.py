"""How the driver is asked about GPUs; it is made up."""

import asyncio
import threading

import pynvml
import pytest
from ddpjob_supervisor.gpu import nvml as module
from ddpjob_supervisor.gpu.health import Gpu
from ddpjob_supervisor.gpu.nvml import Nvml
from ddpjob_supervisor.watch import nvidia_driver

from .driver import Driver

LOST = pynvml.NVML_ERROR_GPU_IS_LOST
NCCL = {"DDPJOB_BACKEND": "nccl"}


def told(nvml: Nvml) -> list[str]:
    return [fact.message for fact in nvml.facts() if "slowed" not in fact.message]


def test_the_driver_is_asked_for_all_that_it_can_tell() -> None:
    first, second = Nvml(Driver()).before
    assert first == Gpu(0, "GPU-0", "0000:0a:00.0", to_reset=True)
    assert second == Gpu(1, "GPU-1", "0000:1a:00.0", to_reset=True, slowed=("it is too hot",))


@pytest.mark.parametrize(
    ("reasons", "slowed"),
    [
        (pynvml.nvmlClocksThrottleReasonSwThermalSlowdown, ("it is too hot",)),
        (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, ("it is too hot",)),
        (0x60, ("it is too hot",)),
        (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, ("its power supply limits it",)),
        (pynvml.nvmlClocksThrottleReasonSwPowerCap | pynvml.nvmlClocksThrottleReasonGpuIdle, ()),
    ],
    ids=["the driver saw it", "the GPU itself did", "both", "power", "what is usual"],
)
def test_a_gpu_is_slowed_down_by_heat_or_its_power_supply(reasons: int, slowed: tuple[str, ...]) -> None:
    driver = Driver()
    driver.hot = reasons
    assert Nvml(driver).before[1].slowed == slowed


def test_what_an_attempt_has_seen_is_told_to_all_who_ask_and_to_no_later_attempt() -> None:
    driver = Driver()
    driver.errors = 1
    nvml = Nvml(driver)
    assert told(nvml) == [], "that was before"
    driver.events = [(1, 31), (1, 48)]
    known = ["GPU 1: Xid 48, double-bit ECC error", "GPU 1: Xid 31, memory page fault"]
    assert (told(nvml), told(nvml)) == (known, known)
    driver.errors = 2
    assert "GPU 0 has had an ECC error that could not be corrected" in told(nvml)
    driver.events = [(0, 74)]
    nvml.begin()
    assert told(nvml) == [], "training went on after that"
    driver.silent[1] = LOST
    assert told(nvml) == ["GPU 1 does not answer: GPU is lost"]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (LOST, "GPU is lost"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "GPU requires restart"),
        (pynvml.NVML_ERROR_NO_PERMISSION, ""),
        (pynvml.NVML_ERROR_UNKNOWN, ""),
        (pynvml.NVML_ERROR_IRQ_ISSUE, ""),
    ],
)
def test_only_a_gpu_that_is_gone_is_lost(error: int, lost: str) -> None:
    driver = Driver()
    nvml = Nvml(driver)
    driver.silent[1] = error
    assert nvml.look()[1] == Gpu(1, lost=lost)
    assert [fact.gpu for fact in nvml.facts()] == ([1] if lost else [])


def test_a_gpu_that_reports_no_events_does_not_keep_others_from_being_heard() -> None:
    driver = Driver(4)
    driver.eventless, driver.silent = {0}, {2: pynvml.NVML_ERROR_UNKNOWN}
    Nvml(driver)
    assert driver.listened_to == [1, 3]


def test_where_there_is_no_driver_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIBRARY", "libnone.so.1")
    module.nvml.cache_clear()
    assert module.nvml() is None
    module.nvml.cache_clear()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The one of this machine."""
    made_up = Driver()
    nvml = Nvml(made_up)
    monkeypatch.setattr(nvidia_driver, "nvml", lambda: nvml)
    return made_up


def test_a_rank_is_told_of_its_own_gpu_alone(driver: Driver) -> None:
    driver.events = [(1, 79)]

    async def asked(local: int, **env: str) -> list[str]:
        known = await nvidia_driver.facts(NCCL | env, 2)
        return [fact.message for fact in known[local] if "slowed" not in fact.message]

    async def all_of_it() -> list[list[str]]:
        return [await asked(0), await asked(1), await asked(0, CUDA_VISIBLE_DEVICES="1,0")]

    fallen = "GPU 1: Xid 79, GPU has fallen off the bus"
    assert asyncio.run(all_of_it()) == [[], [fallen], [fallen]]


def test_before_training_only_the_gpus_are_looked_at_that_it_will_use(driver: Driver) -> None:
    driver.worn_out = True

    async def worn_out(**env: str) -> list[bool]:
        return [gpu.worn_out for gpu in await nvidia_driver.present(env)]

    assert asyncio.run(worn_out(**NCCL)) == [True, False]
    assert asyncio.run(worn_out(**NCCL, CUDA_VISIBLE_DEVICES="GPU-1")) == [False]
    assert asyncio.run(worn_out(DDPJOB_BACKEND="gloo")) == []


def test_a_driver_that_says_nothing_holds_nobody(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(driver, "nvmlDeviceGetCount", never.wait)
    before = threading.active_count()

    async def asked_again_and_again() -> None:
        for _ in range(3):
            assert await nvidia_driver.facts(NCCL, 2, seconds=0.05) == [[], []]
        await asyncio.sleep(0.1)

    try:
        asyncio.run(asked_again_and_again())
        assert threading.active_count() <= before + 1, "nor many threads"
    finally:
        never.set()
