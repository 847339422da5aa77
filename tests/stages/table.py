"""The stages, and which tests a changed room concerns: data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Tests that go beside each other, and those that follow them.

    make   a target that is the whole stage; without its success nothing else is tried
    tests  files and folders, where it is pytest's
    flags  pytest's, for how they go beside each other
    """

    name: str
    make: str = ""
    tests: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


SPEED = "tests/cluster/test_speed.py"
FAULTS = "tests/faults/test_faults.py"
NODES = ("tests/plant/test_real.py", "tests/e2e")

STAGES = (
    Stage("unit", make="unit"),
    Stage("plant", make="plant"),
    Stage(
        "processes",
        # A page is one test, and some take a minute: first, so that no worker is left alone with one at the end.
        tests=(
            "tests/docs",
            "tests/training",
            "tests/local",
            "tests/cluster",
            "tests/slurm",
            "tests/report",
            "tests/chart",
            "tests/plant",
            "tests/model",
            "tests/faults",
            "tests/stages",
            "tests/support",
        ),
        flags=("--numprocesses=4", "--dist=worksteal", *(f"--ignore={apart}" for apart in (SPEED, FAULTS, *NODES))),
    ),
    # Speed has the cores to itself. Plans go on beside each other in one process, on one plant.
    Stage("speed", tests=(SPEED,)),
    Stage("faults", tests=(FAULTS,)),
    # Two clusters, each for one file at a time: most of it is waiting.
    Stage("nodes", tests=NODES, flags=("--numprocesses=2", "--dist=loadfile")),
)

NEVER_RETRIED = ("tests/model/", "tests/faults/")
"""What fails here once is a fault: nothing in it depends on how busy the machine is."""

OPERATOR = "operator/ddpjob_operator"
ROOMS = {
    f"{OPERATOR}/api/": ("tests/model", "tests/local", "tests/cluster", "tests/faults", "tests/chart"),
    f"{OPERATOR}/engine/": ("tests/model", "tests/local", "tests/cluster", "tests/faults", "tests/e2e"),
    f"{OPERATOR}/cluster/": ("tests/cluster", "tests/faults", "tests/e2e"),
    f"{OPERATOR}/local/": ("tests/local", "tests/docs"),
    f"{OPERATOR}/client/": ("tests/cluster", "tests/e2e"),
    f"{OPERATOR}/cli/": ("tests/local", "tests/cluster", "tests/docs", "tests/e2e"),
    f"{OPERATOR}/report/": ("tests/report", "tests/docs"),
    "trainer/": ("tests/training", "tests/local", "tests/slurm", "tests/docs", "tests/report", "tests/e2e"),
    "charts/": ("tests/chart", "tests/e2e"),
    "deploy/": ("tests/chart", "tests/cluster", "tests/docs", "tests/e2e"),
    "docs/": ("tests/docs", "tests/e2e"),
    "README.md": ("tests/docs", "tests/e2e"),
    "tests/plant/": ("tests/plant", "tests/cluster", "tests/e2e"),
    "tests/support/": ("tests",),
    "tests/conftest.py": ("tests",),
    "requirements/": ("tests",),
    "pyproject.toml": ("tests",),
}
"""Which tests a change of a room concerns, beside those in the folder that is itself changed."""
