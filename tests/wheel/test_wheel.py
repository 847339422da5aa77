"""What is installed from the wheel alone, beside other torches and other libraries, does what it does here."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.local.here import Here
from tests.strangers.stranger import SCRIPTS
from tests.support.trainers import HUGGING_FACE, LIGHTNING, TOLD
from tests.support.waiting import patience
from tests.wheel import projects


def test_without_the_extra_the_command_says_what_is_missing(project: Here, wheel: Path) -> None:
    projects.install(project.bin, str(wheel))
    code, said = project.ddpjob("run", "train.py")
    assert code == 2, said
    assert said.count("\n") == 1, said
    assert "ddpjob was installed without its extra cli; install it as ddpjob[cli]" in said


@pytest.mark.full("tests/wheel/test_page.py installs it; here pip does, with what the extras and libraries add")
def test_pip_installs_it_beside_libraries_that_train_and_they_report(project: Here, wheel: Path) -> None:
    projects.link(project.bin, "torch", "numpy")
    projects.install(project.bin, "pip")
    pip = [project.bin / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"{wheel}[cli,report]", "lightning", "transformers[torch]>=5"], check=True)
    for name, script in {"lit": LIGHTNING, "tune": HUGGING_FACE}.items():
        (project.directory / f"{name}.py").write_text(script)
        code, said = project.ddpjob("run", f"{name}.py", "-n", "2")
        assert code == 0, said
        assert TOLD.items() <= project.status(name)["progress"].items(), json.dumps(project.status(name))
    code, said = project.ddpjob("report", "lit")
    assert (code, said) == (0, "written: ddpjob-runs/lit/report.html\n")
    code, said = project.ddpjob("rm", "lit")
    assert code == 0, said


@pytest.mark.full("what each version of torch brings differs; the page runs with this environment's")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("torch", ["torch~=2.4.0", "torch~=2.6.0", "torch"])
def test_a_strangers_script_goes_on_after_a_kill_with_torch(project: Here, wheel: Path, torch: str) -> None:
    projects.install(project.bin, f"{wheel}[cli]", torch)
    shutil.copy(SCRIPTS / "multinode.py", project.directory)
    words = ("--preload", "torch.utils.data.distributed", "multinode.py", "100000", "10")
    run = project.start("run", project.job("any", "ddpjob-supervise", *words, nodes=2, backend="Gloo"))
    project.wait("a save and two epochs more", lambda: "Epoch 12 " in project.log("any", 1))
    project.ranks("any")[-1].kill()
    project.wait("the restart", lambda: project.status("any").get("restarts") == 1)
    assert project.status("any")["lastFailure"]["signal"] == "SIGKILL"
    project.wait("its resumption", lambda: project.log("any", 1).count("Resuming training") == 1)
    counted = "stepsSinceRestart"  # Its steps are counted, and nobody knows how many those before the snapshot were.
    project.wait("steps after it", lambda: project.status("any").get("progress", {}).get(counted, 0) > 0)
    assert "begins in place" in project.log("any", 1)
    assert project.ddpjob("stop", "any")[0] == 0
    run.communicate(timeout=patience(120))
