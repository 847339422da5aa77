"""The plan of `make gpu`: what is left out on which machine."""

from tests.gpu.plan import PLAN, fitting
from tests.gpu.running import Machine


def left_out(machine: Machine) -> dict[str, str]:
    return {trial.what: why for trial, why in fitting(machine) if why}


def test_without_a_gpu_the_plan_runs_over_gloo_except_for_what_only_gpus_have() -> None:
    assert set(left_out(Machine(0, "none")).values()) == {"needs a GPU"}
    assert Machine(0, "none").backend == "gloo"


def test_a_single_gpu_is_enough_for_all_but_what_takes_two_processes() -> None:
    assert set(left_out(Machine(1, "one")).values()) == {"needs 2 GPUs"}
    assert left_out(Machine(2, "two")) == {}


def test_each_trial_has_a_name_of_its_own() -> None:
    assert len({trial.what for trial in PLAN}) == len(PLAN)
