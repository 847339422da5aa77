"""What `ddpjob submit --pip` has a pod do, with the Python of these tests for the image's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api.entrypoint import Options, document_of, script
from ddpjob_operator.cli.cluster.pod_options import PACKAGES_DIRECTORY, PodOptions, with_pod_options

from tests.support.index import Index, Package, start_index

DEPENDS, NEEDED, NEWER = (
    Package("ddpjobtiny", "1.2", ["torch", "ddpjobneeded>=2"]),
    Package("ddpjobneeded", "2.0"),
    Package("packaging", "99.0"),
)
WANTS_ANOTHER_TORCH = Package("ddpjobold", "1.0", ["torch==1.0"])


@dataclass(frozen=True)
class Image:
    """An image, and an index that its pods reach."""

    packages: Path
    report: Path
    index: Index
    code: Path
    """Where the program is unpacked: the container's working directory."""

    def install(self, *words: str, **env: str) -> tuple[int, str]:
        """Runs the init container; its exit code and its log."""
        document = with_pod_options(document_of(script("train.py"), Options(None)), PodOptions(packages=words))
        (container,) = document["spec"]["template"]["spec"]["initContainers"]
        command = [*container["command"], *container["args"]]
        assert not any("$(" in word for word in command), "Kubernetes would expand it"
        done = subprocess.run(
            [str(self.packages) if word == PACKAGES_DIRECTORY else word for word in command],
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_INDEX_URL": self.index.url,
                "DDPJOB_TERMINATION_LOG": str(self.report),
                **env,
            },
            cwd=self.code,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def told(self) -> Mapping[str, Any]:
        """The failure report."""
        found: Mapping[str, Any] = json.loads(self.report.read_text())
        return found

    def python(self, code: str) -> str:
        """What the trainer's Python says, which finds the packages by its PYTHONPATH alone."""
        words = [sys.executable, "-c", code]
        return subprocess.check_output(words, env={"PYTHONPATH": str(self.packages / "site")}, text=True).strip()


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    with start_index(DEPENDS, NEEDED, NEWER, WANTS_ANOTHER_TORCH) as index:
        (code := tmp_path / "code").mkdir()
        for name in ("json", "random", "queue"):
            (code / f"{name}.py").write_text("raise ImportError('it is not of the standard library')\n")
        yield Image(tmp_path / "packages", tmp_path / "report", index, code)


def test_what_the_image_lacks_is_installed_beside_what_it_has(image: Image) -> None:
    there = image.index.url.removeprefix("http://").removesuffix("/simple/")
    needed = f"ddpjobneeded @ http://me:${{TOKEN}}@{there}/files/{NEEDED.file}"
    code, log = image.install("ddpjobtiny", needed, "packaging>=99", TOKEN="hush")
    assert code == 0, log
    first, *_, last = log.splitlines()
    assert first == f"installing ddpjobtiny ddpjobneeded @ http://****@{there}/files/{NEEDED.file} packaging>=99"
    assert (image.index.users, "hush" in log) == ({"me:hush"}, False), log
    assert last.startswith("installed ddpjobneeded 2.0, ddpjobtiny 1.2, packaging 99.0 in ")
    assert "/simple/torch/" not in image.index.asked, "the image's stays"
    seen = image.python(
        "import ddpjobtiny, ddpjobneeded, packaging, importlib.util as u; print(u.find_spec('torch').origin)"
    )
    assert not seen.startswith(str(image.packages))
    assert not image.report.exists()

    _, log = image.install("torch", "pip")  # As of a pod that starts once more.
    assert log.splitlines()[-1].startswith("installed nothing (the image has everything) in "), log
    assert not (image.packages / "site" / "ddpjobtiny.py").exists()


LOCKED = f"ddpjobneeded==2.0 --hash=sha256:{'0' * 64}\n"

CANNOT = {
    "no such package": (["ddpjob-no-such>=9"], "ConfigError", "No matching distribution found for ddpjob-no-such>=9"),
    "another torch": (["ddpjobold"], "ConfigError", "The image's torch=="),
    "other bytes than were locked": (["-r", "{locked}"], "ConfigError", "ddpjobneeded"),
    "no requirement": (["einops=>1"], "ConfigError", "Invalid requirement: 'einops=>1'"),
}


@pytest.mark.parametrize(("words", "cause", "said"), CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_had_is_told_by_its_name_in_one_line(
    words: list[str], cause: str, said: str, image: Image, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.txt"
    locked.write_text(LOCKED)
    code, log = image.install(*(word.format(locked=locked) for word in words))
    assert (code, image.told()["cause"]) == (2, cause), log
    assert said in image.told()["message"]
    assert log.splitlines()[-1].startswith("error: cannot install packages: ")
    assert "Traceback" not in log


def test_an_index_that_does_not_answer_may_answer_the_next_time(image: Image) -> None:
    nobody = "http://user:h@sh@127.0.0.1:9/simple/"
    code, log = image.install("ddpjobtiny", PIP_INDEX_URL=nobody, PIP_RETRIES="1")
    assert (code, image.told()["cause"]) == (2, "Application"), log
    assert "ddpjobtiny" in image.told()["message"]
    assert "sh@" not in log + image.told()["message"]


def test_a_search_path_of_the_images_own_is_not_lost_without_a_word(image: Image) -> None:
    code, log = image.install("ddpjobtiny", PYTHONPATH="/workspace")
    assert (code, "to keep it: --env PYTHONPATH=/workspace" in image.told()["message"]) == (2, True), log
