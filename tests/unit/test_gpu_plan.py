"""The plan of `make gpu`: what is left out on which machine."""

from pathlib import Path

from tests.gpu.plan import LONGEST_SECONDS, PLAN, fitting, too_late
from tests.gpu.running import Machine


def left_out(machine: Machine) -> dict[str, str]:
    return {trial.what: why for trial, why in fitting(machine) if why}


def test_without_a_gpu_the_plan_runs_over_gloo_except_for_what_only_gpus_have() -> None:
    assert set(left_out(Machine(0, "none")).values()) == {"needs a GPU"}
    assert Machine(0, "none").backend == "gloo"


def test_a_single_gpu_is_enough_for_all_but_what_takes_two_processes() -> None:
    assert set(left_out(Machine(1, "one")).values()) == {"needs 2 GPUs"}
    assert left_out(Machine(2, "two")) == {}


def test_a_rank_that_is_killed_restarts_on_a_single_gpu_too() -> None:
    assert "a rank is killed: restart in place" not in left_out(Machine(1, "one"))


def test_all_of_it_ends_in_eight_minutes_whatever_hangs() -> None:
    elapsed, begun = 0.0, 0
    for trial in PLAN:
        if not too_late(trial, elapsed):
            elapsed, begun = elapsed + trial.seconds, begun + 1
    assert elapsed <= LONGEST_SECONDS < 480
    assert 0 < begun < len(PLAN), "what is left is not begun, and said to be"


def test_a_run_that_hangs_ends_with_its_trial(tmp_path: Path) -> None:
    run = Machine(0, "none").within(0.1).supervises(tmp_path, "import time; time.sleep(3600)")
    assert run.code == -1
    assert run.output.endswith("no end within 0 s")


def test_each_trial_has_a_name_of_its_own() -> None:
    assert len({trial.what for trial in PLAN}) == len(PLAN)
