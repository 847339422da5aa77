"""What is installed from the wheel alone, beside other torches and other libraries, does what it does here."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from ddpjob_operator.cli import dashboard

from tests.local.here import Here
from tests.support.trainers import HUGGING_FACE, LIGHTNING, TOLD
from tests.wheel import projects


def test_without_the_extra_the_command_says_what_is_missing(project: Here, wheel: Path) -> None:
    projects.install(project.bin, str(wheel))
    code, said = project.ddpjob("run", "train.py")
    assert code == 2, said
    assert said.count("\n") == 1, said
    assert "ddpjob was installed without the extra `cli`; install ddpjob[cli]" in said


def test_it_has_the_dashboards_page_with_the_licences_of_what_others_have_written(wheel: Path) -> None:
    web = Path(dashboard.__file__).with_name("web")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        packed = {
            name: content.read(name) for name in names if "/dashboard/web/" in name and ".dist-info/" not in name
        }
    here = {
        f"ddpjob_operator/cli/dashboard/web/{file.relative_to(web).as_posix()}": file.read_bytes()
        for file in web.rglob("*")
        if file.is_file()
    }
    assert packed == here
    licences = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert licences >= {"LICENSE", *(file.name for file in web.rglob("*.LICENSE"))}


@pytest.mark.full("tests/wheel/test_page.py installs it; here pip does, with what the extras and libraries add")
def test_pip_installs_it_beside_libraries_that_train_and_they_report(project: Here, wheel: Path) -> None:
    projects.link(project.bin, "torch", "numpy")
    projects.install(project.bin, "pip")
    pip = [project.bin / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"{wheel}[cli,report]", "lightning", "transformers[torch]>=5"], check=True)
    for name, script in {"lit": LIGHTNING, "tune": HUGGING_FACE}.items():
        (project.directory / f"{name}.py").write_text(script)
        code, said = project.ddpjob("run", f"{name}.py", "--procs-per-node", "2")
        assert code == 0, said
        assert TOLD.items() <= project.status(name)["progress"].items(), json.dumps(project.status(name))
    code, said = project.ddpjob("report", "lit")
    assert (code, said) == (0, "written: ddpjob-runs/lit/report.html\n")
    code, said = project.ddpjob("rm", "lit")
    assert code == 0, said
