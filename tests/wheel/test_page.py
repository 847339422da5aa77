"""The page on other projects is true: with the wheel, a torch that is there, and nothing of the clone on any path."""

import json
from pathlib import Path

from tests.docs.pages import IN_A_PROJECT
from tests.docs.reader import Reader, read
from tests.wheel import projects

PAGE = "docs/how-to/use-it-in-your-project.md"


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    home = tmp_path / "home"
    programs = projects.environment(tmp_path / "environment")
    projects.link(programs, "torch")
    variables = projects.variables(home, programs)
    projects.a_clone(home / "ddpjob")
    reader = Reader(tmp_path / "project", IN_A_PROJECT, variables, has=())
    read(PAGE, reader)

    run = reader.directory / "ddpjob-runs" / "train"
    assert "without a status page" not in (log := (run / "logs" / "attempt-1" / "node-0.log").read_text()), log
    progress = json.loads((run / "job.json").read_text())["status"]["progress"]
    assert progress["step"] == progress["totalSteps"] == 100, "its page was heard"
