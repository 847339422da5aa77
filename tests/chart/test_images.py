"""What is in the images that the plant has built, layer by layer, and that they run as they will in a pod."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.plant.images.build import OPERATOR, PYTHON, TRAINER
from tests.plant.images.store import Image, read_image
from tests.plant.needs import demand

SITE_PACKAGES = "opt/ddpjob/lib/python*/site-packages"
UNCHECKED_HASH = 0b01
"""Flags of bytecode that is used without a look at its source."""


@pytest.fixture(params=[OPERATOR, TRAINER], ids=["operator", "trainer"])
def image(request: pytest.FixtureRequest) -> Image:
    demand("real")
    return read_image(request.param)


def own_layers(image: Image) -> list[Path]:
    """The layers on top of the base."""
    return image.layers[len(read_image(PYTHON).layers) :]


def files(layer: Path) -> set[str]:
    return {file.relative_to(layer).as_posix() for file in layer.rglob("*") if not file.is_dir()}


def run(image: Image, *command: str) -> str:
    """What a command prints in the image, on a root that nobody can write to, as the image's user."""
    user = json.loads(image.config)["config"]["User"]
    lower = ":".join(str(layer) for layer in reversed(image.layers))
    script = 'mount -t overlay overlay -o "ro,lowerdir=$1" /mnt && shift && exec chroot --userspec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", lower, user, "/mnt", *command],
        env={"PATH": "/opt/ddpjob/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_on_a_root_that_nobody_can_write_to(image: Image) -> None:
    (entrypoint,) = json.loads(image.config)["config"]["Entrypoint"]
    assert f"usage: {entrypoint}" in run(image, entrypoint, "--help")


def test_it_names_a_user_without_rights_and_the_user_has_a_name(image: Image) -> None:
    user = int(json.loads(image.config)["config"]["User"].split(":")[0])
    assert user >= 1000
    assert run(image, "id", "--user", "--name") == "ddpjob\n"


def test_only_the_code_is_in_the_layer_that_changes_with_it(image: Image) -> None:
    *_, dependencies, code = (layer for layer in own_layers(image) if files(layer))
    packages = {file.name.split("-")[0] for file in code.glob(f"{SITE_PACKAGES}/*")}
    parts = {"examples", "operator", "preflight", "rank", "supervisor", "trainer"}
    assert packages == {"ddpjob", *(f"ddpjob_{part}" for part in parts)}
    assert not list(dependencies.glob(f"{SITE_PACKAGES}/ddpjob*"))


def test_it_has_nothing_that_only_its_build_needs(image: Image) -> None:
    found = set().union(*map(files, own_layers(image)))
    elsewhere = {file for file in found if not file.startswith("opt/ddpjob/")}
    assert elsewhere <= {"etc/passwd"}
    tools = {"pip", "uv", "wheel", "hatchling", "gcc", "cc"}
    assert not {
        file for file in found if Path(file).parent.name in {"bin", "site-packages"} and Path(file).name in tools
    }
    assert not {file for layer in own_layers(image) for file in layer.glob(f"{SITE_PACKAGES}/pip")}


def test_all_of_it_is_compiled_and_dates_do_not_matter(image: Image) -> None:
    for layer in own_layers(image):
        for package in layer.glob(f"{SITE_PACKAGES}/ddpjob_*"):
            for source in package.rglob("*.py"):
                (bytecode,) = source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc")
                assert int.from_bytes(bytecode.read_bytes()[4:8], "little") == UNCHECKED_HASH, source
        dates = {file.lstat().st_mtime for file in layer.rglob("*") if not file.is_dir()}
        assert len(dates) <= 1
