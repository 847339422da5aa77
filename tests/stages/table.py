"""The stages, and which tests a changed room concerns: data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tests:
    """One run of pytest.

    tests  files and folders
    flags  how they go beside each other
    """

    tests: tuple[str, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """What goes beside each other. The next stage follows once all of it has come to its end.

    make  a target that is the whole stage; without its success nothing else is tried
    runs  where it is pytest's
    full  whether only all tests together have it, or its own name
    """

    name: str
    make: str = ""
    runs: tuple[Tests, ...] = ()
    full: bool = False

    @property
    def tests(self) -> list[str]:
        """Files and folders of all its runs."""
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
                # A page is one test, and some take a minute: first, so that none is left alone at the end.
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
            # An API server takes many seconds of a core to come up, so few processes start any. tests/cluster has 2:
            # one process would go on alone for ten minutes after all others.
            Tests(("tests/cluster",), ("--numprocesses=2", "--dist=worksteal", f"--ignore={SPEED}")),
            Tests(
                ("tests/chart", "tests/plant", "tests/scheduling", "tests/faults"),
                tuple(f"--ignore={apart}" for apart in (FAULTS, *NODES)),
            ),
            # One cluster of real nodes: its tests wait for more than they compute.
            Tests(NODES),
        ),
    ),
    # Plans go on beside each other in one process, on one plant.
    Stage("faults", runs=(Tests((FAULTS,)),)),
    # Speed has the cores to itself.
    Stage("speed", runs=(Tests((SPEED,)),), full=True),
    # The tests of the real nodes again, on a cluster as users have: on nodes of kind.
    Stage("kind", make="e2e-kind", full=True),
)

NEVER_RETRIED = ("tests/model/", "tests/faults/")
"""What fails here once is a fault: nothing in it depends on how busy the machine is."""

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
    "deploy/": ("tests/chart", "tests/cluster", "tests/docs", "tests/e2e"),
    "docs/": ("tests/docs", "tests/scheduling", "tests/e2e"),
    "README.md": ("tests/docs", "tests/e2e"),
    "tests/plant/": ("tests/plant", "tests/cluster", "tests/scheduling", "tests/e2e"),
    "tests/support/": ("tests",),
    "tests/conftest.py": ("tests",),
    "requirements/": ("tests",),
    "pyproject.toml": ("tests",),
}
"""Which tests a change of a room concerns, beside those in the folder that is itself changed."""

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
        "tests/training/test_starting.py",
        "tests/training/test_supervising.py",
    ),
}
"""What of a room's tests `make test-near` runs: those that notice most in a minute or two; none has real nodes."""
