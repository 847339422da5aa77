"""Packages that the image lacks, on nodes that run containers and reach an index of this machine."""

import os
import shutil
from pathlib import Path

import pytest

from tests.plant import Plant
from tests.plant.images import PYTHON
from tests.plant.machines import Machines
from tests.support.image_registry import answers, real_registry
from tests.support.index import Package, start_index
from tests.support.jobs import Team

from .test_training import RESTRICTED
from .work import LONG, PLAIN_SCRIPT, ddpjob, ended, logs, submitted

OLD, NEW = (Package("ddpjobtiny", version, ["torch", "ddpjobneeded"]) for version in ("1.2", "1.3"))
NEEDED = Package("ddpjobneeded", "2.0")

SAYS = "import ddpjobtiny, ddpjobneeded\nprint('tiny', ddpjobtiny.VERSION, flush=True)\n"
STAYS = f"{SAYS}import time; time.sleep(3600)\n"


def test_what_the_image_lacks_is_there_before_ranks_start_and_what_cannot_be_had_is_told_at_once(
    host: Machines, tmp_path: Path
) -> None:
    team = Team(host, host.new_namespace(**RESTRICTED))
    script, address = tmp_path / "train.py", host.address
    with start_index(OLD, NEW, NEEDED, host=address) as index:
        at = ["--env", f"PIP_INDEX_URL={index.url}", "--env", f"PIP_TRUSTED_HOST={address}"]
        words = ["train.py", "--nodes", "2", "--env", "OMP_NUM_THREADS=1", *at]
        script.write_text(STAYS)
        submitted(team, tmp_path, *words, "--pip", "ddpjobtiny==1.2")
        team.wait("Running", "train", LONG)
        host.wait("the packages of both nodes", lambda: logs(team, "train").count("tiny 1.2") == 2, LONG)
        locked = "".join(f"{one.name}=={one.version} --hash=sha256:{one.digest}\n" for one in (NEW, NEEDED))
        (tmp_path / "locked.txt").write_text(f"{locked}--only-binary :all:\n")
        script.write_text(SAYS + PLAIN_SCRIPT)
        submitted(team, tmp_path, "--replace", *words, "-r", "locked.txt")
        team.wait("Succeeded", "train", LONG)
        assert not [path for path in index.asked if "/torch/" in path], "the image's is theirs"
        said = ddpjob(team, "logs", "train")
        assert [f"[rank {rank}] installed ddpjobneeded 2.0, ddpjobtiny 1.3 in " in said for rank in range(2)] == [
            True
        ] * 2
        assert {f"rank {rank} of 2 is done" for rank in range(2)} <= set(logs(team, "train").splitlines())

        submitted(team, tmp_path, *words, "--name", "typo", "--pip", "ddpjobtinny")
        status = ended(team, "typo")
    failure = status["incidents"][0]
    assert (status["state"], status["restarts"], failure["cause"]) == ("Failed", 0, "ConfigError")
    assert "No matching distribution found for ddpjobtinny" in failure["message"]
    assert failure["message"] in ddpjob(team, "status", "typo")

    submitted(team, tmp_path, "train.py", "--name", "lacks")
    status = ended(team, "lacks")
    assert (status["state"], status["restarts"]) == ("Failed", 0)
    lacks = "No module named 'ddpjobtiny', in train.py:1 or 'ddpjobneeded', in train.py:1: the image lacks them"
    assert (
        f"{lacks}: install them with ddpjob submit --pip ddpjobtiny --pip ddpjobneeded "
        in status["incidents"][0]["message"]
    )


@pytest.mark.full("tests/unit/cli/test_pod_options.py has the volume's YAML; Kubernetes and containerd do the rest")
def test_the_files_of_an_image_are_a_volume(real: Plant, team: Team, tmp_path: Path) -> None:
    major, minor, _ = real.get("/version")["gitVersion"].removeprefix("v").split(".", 2)
    if (int(major), int(minor)) < (1, 35):
        pytest.skip("left out: by default, Kubernetes has image volumes from 1.35 on")
    code = "import os; print('python' in ' '.join(os.listdir('/other/usr/bin')), os.access('/other', os.W_OK))"
    submitted(team, tmp_path, "--name", "files", "--image-volume", f"{PYTHON}:/other", "--", "python", "-c", code)
    team.wait("Succeeded", "files", LONG)
    assert logs(team, "files") == "True False\n"


@pytest.mark.full("tests/unit/cli/test_source_registry.py has the volume's YAML, and test_image_registry.py the push")
@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="left out: docker-registry is not on PATH")
def test_larger_code_goes_through_a_registry(host: Machines, team: Team, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nprint('size', os.path.getsize('large.bin'), os.access('.', os.W_OK), flush=True)\n"
    )
    (tmp_path / "large.bin").write_bytes(os.urandom(3 << 20))
    (storage := tmp_path / "registry").mkdir()
    (storage / ".gitignore").write_text("*")
    with real_registry(storage, "0.0.0.0") as address:
        host.wait("the registry", lambda: answers(address), LONG)
        for node in host.nodes.values():
            (folder := node.registries / address).mkdir(parents=True)
            seen_by_nodes = address.replace("127.0.0.1", host.address)
            (folder / "hosts.toml").write_text(f'server = "http://{seen_by_nodes}"\n')
        there = ["--source", str(tmp_path), "--source-registry", f"{address}/team/code"]
        submitted(team, tmp_path, "train.py", "--nodes", "2", *there)
        team.wait("Succeeded", "train", LONG)
        assert logs(team, "train").count(f"size {3 << 20} True\n") == 2
