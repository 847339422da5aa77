"""Data: the stages, and which tests a changed room concerns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tests:
    """One run of pytest.

    tests  files and folders
    flags  how the tests run in parallel
    """

    tests: tuple[str, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """Runs that take place at the same time. The next stage begins when all of them have ended.

    make  a make target that is the whole stage; if it fails, no later stage is run
    runs  the runs of pytest, for any other stage
    full  whether the stage runs only if all tests are run, or if it is named
    """

    name: str
    make: str = ""
    runs: tuple[Tests, ...] = ()
    full: bool = False

    @property
    def tests(self) -> list[str]:
        """The files and folders of all runs of the stage."""
        return [test for run in self.runs for test in run.tests]


SPEED = "tests/cluster/test_speed.py"
FAULTS = "tests/faults/test_faults.py"
NODES = ("tests/plant/test_real.py", "tests/e2e", "tests/scheduling/test_real_nodes.py")

STAGES = (
    Stage("unit", make="unit"),
    Stage("plant", make="plant"),
    Stage(
        "processes",
        runs=(
            Tests(
                # A page is one test, and some pages take a minute. They come first, so that none is left to run alone
                # at the end.
                (
                    "tests/docs",
                    "tests/training",
                    "tests/local",
                    "tests/strangers",
                    "tests/wheel",
                    "tests/slurm",
                    "tests/report",
                    "tests/model",
                    "tests/stages",
                    "tests/support",
                ),
                ("--numprocesses=3", "--dist=worksteal"),
            ),
            # An API server takes many seconds of a core to start, so only few processes start one. tests/cluster has
            # 2 processes: a single one would run for ten minutes after all others have ended.
            Tests(("tests/cluster",), ("--numprocesses=2", "--dist=worksteal", f"--ignore={SPEED}")),
            Tests(
                ("tests/chart", "tests/plant", "tests/scheduling", "tests/faults"),
                tuple(f"--ignore={apart}" for apart in (FAULTS, *NODES)),
            ),
            # These share one cluster of real nodes, and wait more than they compute.
            Tests(NODES),
        ),
    ),
    # Fault plans run concurrently in one process, on one plant.
    Stage("faults", runs=(Tests((FAULTS,)),)),
    # Tests of speed have the cores to themselves.
    Stage("speed", runs=(Tests((SPEED,)),), full=True),
    # The tests of the real nodes run once more, on nodes of kind, because users have such clusters, too.
    Stage("kind", make="e2e-kind", full=True),
)

NEVER_RETRIED = ("tests/model/", "tests/faults/")
"""A failure in these tests is always a bug, because nothing in them depends on how busy the machine is."""

OPERATOR = "operator/ddpjob_operator"
ROOMS = {
    f"{OPERATOR}/api/": ("tests/model", "tests/local", "tests/cluster", "tests/faults", "tests/chart"),
    f"{OPERATOR}/engine/": (
        *("tests/model", "tests/local", "tests/cluster", "tests/scheduling", "tests/faults", "tests/e2e"),
    ),
    f"{OPERATOR}/cluster/": ("tests/model", "tests/cluster", "tests/scheduling", "tests/faults", "tests/e2e"),
    f"{OPERATOR}/local/": ("tests/local", "tests/strangers", "tests/wheel", "tests/docs"),
    f"{OPERATOR}/client/": ("tests/cluster", "tests/e2e"),
    f"{OPERATOR}/cli/": ("tests/local", "tests/wheel", "tests/cluster", "tests/docs", "tests/e2e"),
    f"{OPERATOR}/report/": ("tests/report", "tests/docs"),
    "trainer/": (
        "tests/training",
        "tests/local",
        "tests/strangers",
        "tests/wheel",
        "tests/slurm",
        "tests/docs",
        "tests/report",
        "tests/e2e",
    ),
    "bench/": ("tests/cluster/test_scale.py",),
    "charts/": ("tests/chart", "tests/e2e"),
    "charts/ddpjob-operator/files/dashboards/": ("tests/cluster/test_dashboards.py",),
    "deploy/": ("tests/chart", "tests/cluster", "tests/docs", "tests/e2e"),
    "docs/": ("tests/docs", "tests/scheduling", "tests/e2e"),
    "README.md": ("tests/docs", "tests/e2e"),
    "tests/plant/": ("tests/plant", "tests/cluster", "tests/scheduling", "tests/e2e"),
    "tests/support/": ("tests",),
    "tests/conftest.py": ("tests",),
    "requirements/": ("tests",),
    "pyproject.toml": ("tests",),
}
"""Which tests a change of a room concerns, in addition to the tests in a folder that is itself changed."""

NEAR = {
    "tests/model": ("tests/model/test_gang.py", "tests/model/test_histories.py", "tests/model/test_largest.py"),
    "tests/local": ("tests/local/test_bad_input.py", "tests/local/test_recovery.py", "tests/local/test_runs.py"),
    "tests/cluster": (
        "tests/cluster/test_blocked.py",
        "tests/cluster/test_deleting.py",
        "tests/cluster/test_life.py",
        "tests/cluster/test_ownership.py",
        "tests/cluster/test_rules.py",
        "tests/cluster/test_success.py",
        "tests/cluster/test_suspending.py",
    ),
    "tests/chart": ("tests/chart/test_rendering.py",),
    "tests/report": ("tests/report",),
    "tests/training": (
        "tests/training/test_in_place.py",
        "tests/training/test_optimisation.py",
        "tests/training/test_resume.py",
        "tests/training/test_saving.py",
        "tests/training/test_supervising.py",
    ),
}
"""Which of a room's tests `make test-near` runs: those that notice most in a minute or two. None has real nodes."""
