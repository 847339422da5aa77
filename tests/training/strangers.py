"""Runs scripts that others wrote under a supervisor, which starts their ranks again after each kill."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.support.frameworks import FRAMEWORKS, Weights, weights
from tests.support.killed_scripts import LIBRARY
from tests.training.forking import start_supervisor_cold
from tests.training.gang import Gang
from tests.training.killing import Place
from tests.training.watching import BEGINS, FIRST_LINES, KILLS, WEIGHTS, Watch

ROOT = Path(__file__).parents[2]
PACKAGES = {"Hugging Face": "transformers", "Lightning": "lightning", "Accelerate": "accelerate"}
"""The packages whose lines count as well."""

DIRECTORY_SECONDS, STORE_SECONDS = 0.05, 0.3
"""Seconds that a step takes longer, so that most of the saves end before a kill."""

SAID = re.compile(rf"{BEGINS}(?P<attempt>\d+)|saved step=(?P<saved>\d+) ")


@dataclass
class Stranger:
    """A script of FRAMEWORKS in a directory of its own.

    size  how many ranks
    env   what its ranks need
    """

    name: str
    directory: Path
    size: int
    place: Place
    env: Mapping[str, str]

    def run(self, seed: str, kills: int) -> Weights:
        """Runs it to its end, and kills it in the first attempts; returns what its ranks have noted."""
        framework = FRAMEWORKS[self.name]
        pause = STORE_SECONDS if self.place.url else DIRECTORY_SECONDS
        self.directory.mkdir()
        script = self.directory / "train.py"
        script.write_text(f'{FIRST_LINES}OUT = "out"\n{framework.changed()}')
        env = {
            **self.env,
            **Watch(seed, kills, pause if kills else 0.0, self._files()).variable(),
            "PYTHONPATH": f"{ROOT}:{self.env['PYTHONPATH']}",
            "DDPJOB_CHECKPOINT_DIR": self.place.of(self.directory),
            "DDPJOB_CHECKPOINT_EVERY_STEPS": "3",
        }
        gang = Gang(self.directory, 1, self.size, env, launch=start_supervisor_cold)
        try:
            while len(self.kills()) <= kills:
                attempt = max(weights(self.directory, WEIGHTS), default=0) + 1
                gang.start_node(0, *framework.options, str(script), *framework.call, attempt=attempt)
                if (code := gang.end_of(0)) == 0:
                    return weights(self.directory, WEIGHTS)
                assert code == 137, gang.story()
        finally:
            gang.kill_node(0)
        raise AssertionError(gang.story())

    def kills(self) -> list[str]:
        """Where ranks were killed."""
        file = self.directory / KILLS
        return file.read_text().splitlines() if file.exists() else []

    def kinds(self) -> Counter[str]:
        """How many of the kills were in a line of the script, of the library and of the framework."""
        files = dict(zip(self._files(), ("script", "library", "framework"), strict=False))
        return Counter(next(kind for file, kind in files.items() if file in kill) for kill in self.kills())

    def check_promises(self, begins: Mapping[int, int]) -> None:
        """Compares where each attempt began with what the ones before had said was saved."""
        promised, log = 0, "".join(map(Path.read_text, sorted(self.directory.glob("node-0.*.log"), key=_number)))
        for said in SAID.finditer(log):
            if said["saved"]:
                promised = max(promised, int(said["saved"]))
            elif begins.get(attempt := int(said["attempt"]), promised) < promised:
                raise AssertionError(f"attempt {attempt} began at {begins[attempt]}, {promised} was saved\n{log}")

    def _files(self) -> list[str]:
        """The beginnings of the paths of the script's files, the library's, and those of its framework, if any."""
        package = next((PACKAGES[word] for word in PACKAGES if word in self.name), None)
        return [str(self.directory / "train.py"), LIBRARY, *([_folder(package, self.env)] if package else [])]


def _folder(package: str, env: Mapping[str, str]) -> str:
    there = Path(env["PYTHONPATH"]) / package
    if there.exists():
        return f"{there}/"
    spec = find_spec(package)
    assert spec
    assert spec.origin
    return f"{Path(spec.origin).parent}/"


def _number(log: Path) -> int:
    return int(log.name.split(".")[1])
