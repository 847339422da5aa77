"""`ddpjob report`: the page of a real run in a real browser, and of runs of which less is known."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError
from ddpjob_operator.report import find, render
from markupsafe import escape

from tests.support.browser import barriers, tab
from tests.support.waiting import patience
from tests.unit.report.lines import ZERO, line, write

DDPJOB = Path(sys.executable).with_name("ddpjob")
CRASHING = Path(__file__).with_name("crashing.py")

JOB: dict[str, Any] = {
    "apiVersion": "ddpjob.dev/v1alpha2",
    "kind": "DDPJob",
    "metadata": {"name": "digits", "uid": "a-uid"},
    "spec": {
        "nodes": 2,
        "checkpoint": {"path": "/checkpoints", "everySteps": 20},
        "restart": {"backoffSeconds": 0},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "image": "any",
                        "command": ["ddpjob-train"],
                        "args": ["--workload", "crashing:Crashing", "--epochs", "40"],
                        "env": [{"name": "WANDB_API_KEY", "value": "not-to-be-seen"}],
                    }
                ]
            }
        },
    },
}


def ddpjob(directory: Path, *arguments: object) -> tuple[int, str]:
    command = [DDPJOB, *map(str, arguments)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=patience(150))
    return done.returncode, done.stdout + done.stderr


def page(directory: Path) -> str:
    """The page of what is in a directory."""
    return render(find(directory), ZERO)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two nodes that was interrupted once, with its page."""
    directory = tmp_path_factory.mktemp("run")
    (directory / "crashing.py").write_bytes(CRASHING.read_bytes())
    (directory / "digits.yaml").write_text(yaml.safe_dump(JOB))
    code, said = ddpjob(directory, "run", "digits.yaml")
    assert code == 0, said
    code, said = ddpjob(directory, "report")
    assert (code, said) == (0, "written: ddpjob-runs/digits/report.html\n")
    return directory / "ddpjob-runs" / "digits"


VISIBLE = """
[...document.querySelectorAll("figure")].map(figure => {
  const seen = [...figure.querySelectorAll("path, rect")].map(path => path.getBoundingClientRect());
  const colours = [...figure.querySelectorAll("path, rect, text")].map(one => getComputedStyle(one));
  return {
    name: figure.querySelector("figcaption").firstChild.textContent.trim(),
    width: Math.max(...seen.map(box => box.width)),
    colours: [...new Set(colours.flatMap(style => [style.stroke, style.fill]))],
  };
})
"""

RIGHT_EDGE = """
Math.max(...[...document.querySelectorAll("table:has(thead) td")].map(cell => cell.getBoundingClientRect().right))
"""
POINTED_AT = """
[...document.querySelectorAll(".tip")].filter(tip => getComputedStyle(tip).visibility === "visible")
  .map(tip => [...tip.querySelectorAll("tspan")].map(one => one.textContent).join(" "))
"""


def test_a_browser_shows_the_page_of_a_run_without_a_request_or_a_complaint(run: Path) -> None:
    address = (run / "report.html").as_uri()
    requests: list[str] = []
    complaints: list[str] = []
    with tab() as page:
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_viewport_size({"width": 1200, "height": 900})
        page.emulate_media(color_scheme="light")
        page.goto(address)
        light, text = page.evaluate(VISIBLE), page.inner_text("body")
        nothing = page.evaluate(POINTED_AT)
        page.locator("figure").first.locator(".place rect").last.hover(force=True)
        (pointed,) = page.evaluate(POINTED_AT)
        page.emulate_media(color_scheme="dark")
        assert barriers(page) == []
        dark, background = page.evaluate(VISIBLE), page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.set_viewport_size({"width": 360, "height": 900})
        width, edge = page.evaluate("document.documentElement.scrollWidth"), page.evaluate(RIGHT_EDGE)
    assert complaints == []
    assert requests == [address]
    figures = {figure["name"]: figure for figure in light}
    assert list(figures) == ["Loss", "accuracy", "Throughput", "Step times by rank", "Parts of a step"]
    assert all(figure["width"] > 100 for figure in figures.values())
    assert "rgb(31, 111, 235)" in figures["Loss"]["colours"]
    assert "rgb(110, 168, 255)" in dark[0]["colours"]
    assert background == "rgb(15, 19, 24)"
    assert nothing == []
    assert re.fullmatch(r"step 880 training: \S+ evaluation: \S+", pointed)
    assert width == 360
    assert edge <= 360, "on a telephone nobody has to find what an incident said, or where a checkpoint is"
    for said in ("digits Succeeded", "RuntimeError: <b>shard</b> 3 is empty", "rank 1: Application", "step-00000880"):
        assert said in text
    assert "880 of 880" in text
    assert "not-to-be-seen" not in (run / "report.html").read_text()


def test_the_metrics_alone_make_a_page_as_from_a_volume_of_a_cluster(run: Path, tmp_path: Path) -> None:
    checkpoints = run / "volumes" / "checkpoints"
    code, said = ddpjob(tmp_path, "report", checkpoints / "metrics", "--output", "metrics.html")
    assert (code, said) == (0, "written: metrics.html\n")
    for text in ((tmp_path / "metrics.html").read_text(), page(checkpoints)):
        assert '<span class="state Finished">' in text
        assert "Throughput" in text
        assert re.search("<td>(rank 0: |started again)", text)  # The other may have been ended before it could say.


def a_run(directory: Path, **status: Any) -> Path:
    run = directory / "ddpjob-runs" / "digits"
    run.mkdir(parents=True)
    (run / "job.json").write_text(json.dumps(JOB | {"status": status}))
    return run


def test_a_run_of_which_nothing_has_happened_yet_has_a_page(tmp_path: Path) -> None:
    text = page(a_run(tmp_path))
    assert ">Pending<" in text
    assert "No curves. No step has been seen yet." in text
    assert "no ddpjob run, so this page may be out of date" in text


def test_a_run_that_is_suspended_needs_nobody_to_carry_it_on(tmp_path: Path) -> None:
    text = page(a_run(tmp_path, state="Suspended", message="Nothing runs until the job is resumed"))
    assert '<span class="state Suspended">' in text
    assert "may be out of date" not in text


def test_metrics_beside_checkpoints_outside_of_the_run_are_found(tmp_path: Path) -> None:
    write(
        tmp_path / "elsewhere" / "metrics" / "metrics.jsonl",
        line("started", 1, 0),
        line("progress", 1, 1, 1, loss=0.5),
    )
    pod = a_run(tmp_path) / "pods" / "digits-0-abcde"
    pod.mkdir(parents=True)
    (pod / "process.json").write_text(json.dumps({"env": {"DDPJOB_CHECKPOINT_DIR": str(tmp_path / "elsewhere")}}))
    assert "<figcaption>Loss" in page(pod.parent.parent)


def test_a_run_that_failed_says_of_what_but_no_secret(tmp_path: Path) -> None:
    failure = {
        "time": "2026-01-01T12:00:30.000000Z",
        "attempt": 1,
        "node": 1,
        "rank": 1,
        "pod": "digits-1",
        "cause": "OutOfMemory",
        "message": "the machine had no memory left for token=not-to-be-seen",
    }
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "MaxRestartsExceeded",
        "message": "no restart is left",
        "lastTransitionTime": "2026-01-01T12:00:31.000000Z",
        "observedGeneration": 1,
    }
    message = "no restart is left after token=not-to-be-seen"
    said = {"state": "Failed", "message": message, "incidents": [failure], "conditions": [condition]}
    text = page(a_run(tmp_path, **said))
    assert ">Failed<" in text
    assert "no restart is left" in text
    assert "the machine had no memory left" in text
    assert "not-to-be-seen" not in text


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ((), "Unknown"),
        ((line("finished", 1, 9), line("saved", 1, 9)), "Finished"),
        ((line("ended", 1, 9, error="StoppedOnRequest", message="saved step 9, stopped on request"),), "Stopped"),
        ((line("ended", 1, 9, error="ValueError", message="no such layer"),), "Failed"),
    ],
)
def test_metrics_alone_tell_how_the_last_start_ended(tmp_path: Path, end: tuple[str, ...], state: str) -> None:
    file = write(tmp_path / "metrics.jsonl", line("started", 1, 0), line("progress", 1, 9, 1, loss=0.5), *end)
    assert f'<span class="state {state}">' in page(file.parent)


def test_a_file_with_only_its_first_lines_makes_a_page(tmp_path: Path) -> None:
    metrics = write(
        tmp_path / "metrics" / "metrics.jsonl", line("started", 1, 0), line("progress", 1, 1, 1, loss="NaN")
    )
    assert ">Unknown<" in page(metrics.parent)


def test_all_metrics_are_drawn_whatever_their_names_and_their_number(tmp_path: Path) -> None:
    names = [f"metric{number}" for number in range(7)] + ["cost in $ and in $\\nothing$", '"><b>bold</b>', "準確率"]
    file = write(
        tmp_path / "metrics.jsonl", line("started", 1, 0), line("evaluated", 1, 9, **dict.fromkeys(names, 0.5))
    )
    drawn = page(file.parent)
    assert all(f"<figcaption>{escape(name)} " in drawn for name in names)
    assert "<b>bold" not in drawn


def test_what_is_no_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"holds neither a run \(job.json\) nor metrics \(metrics.jsonl, progress.jsonl\)"
    ):
        find(tmp_path)
    a_run(tmp_path)
    code, said = ddpjob(tmp_path, "report", "--output", "nowhere/page.html")
    assert code == 2
    assert "nowhere/page.html: No such file or directory; choose another with --output" in said


def test_without_its_libraries_it_says_how_to_install_them(tmp_path: Path) -> None:
    a_run(tmp_path)
    program = "import sys; sys.modules['matplotlib'] = None; from ddpjob_operator.cli.main import main; main()"
    command = [sys.executable, "-c", program, "report"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: ddpjob report needs matplotlib; install it with: pip install jinja2 matplotlib\n"
