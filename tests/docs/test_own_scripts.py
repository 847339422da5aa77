"""The scripts of the page "Bring your script" go on from their checkpoints after a rank of theirs was killed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks
from tests.local.here import Here
from tests.support.waiting import patience

PAGE = PAGES["docs/tutorial/bring-your-script.md"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """A directory with all files of the page. An epoch takes long enough to be interrupted."""
    for block in blocks(PAGE):
        if block.title:
            text = block.text.replace("samples=2000", "samples=6000").replace("torchrun, ", "ddpjob-supervise, ")
            (tmp_path / block.title).write_text(text)
    place = Here(tmp_path)
    yield place
    place.end()


@pytest.mark.parametrize(
    "name",
    [
        "accelerated",
        pytest.param(
            "lit", marks=pytest.mark.full("a loop is killed here, and test_pages.py runs this one undisturbed")
        ),
    ],
)
def test_a_script_goes_on_from_its_checkpoint(here: Here, name: str) -> None:
    run = here.start("run", f"{name}.yaml")
    here.wait("two epochs", lambda: "trained epoch 2 of 10" in here.log(name, 0))
    here.ranks(name)[-1].kill()
    output, _ = run.communicate(timeout=patience(120))
    assert run.returncode == 0, output
    resumed = re.search(r"resumed step=\d+ epoch=(\d+) ", output)
    assert resumed, output
    assert 1 <= int(resumed[1]) < 10  # The second epoch is told before it is saved.
    assert "trained epoch 10 of 10" in output
    assert here.status(name)["restarts"] == 1
