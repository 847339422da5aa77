"""Several runs on one page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpjob_operator.report import compare, find
from ddpjob_operator.view_model import Record, Records, Start
from markupsafe import escape

from .lines import ZERO, line, write
from .test_page import DOCUMENT

TRAINED = [line("progress", 1, step, at=step, loss=1 / step, metrics={"accuracy": 0.5}) for step in (1, 2, 3)]


def a_run(directory: Path, name: str, *lines: str, env: dict[str, str] | None = None, **began: Any) -> Path:
    """The directory of a run with these records."""
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    trainer = {"name": "trainer", "image": "any", "command": ["python", f"{name}.py"], "env": variables}
    document = DOCUMENT | {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [trainer]}}}}
    write(directory / "job.json", json.dumps(document))
    if lines:
        write(directory / "metrics" / "progress.jsonl", line("started", 1, 0, **began), *lines)
    return directory


def page(*runs: Path) -> str:
    return compare([find(run) for run in runs], ZERO)


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """The rows of a table, by name."""
    table = text.split(f">{heading}</h2>")[1].split("</table>", maxsplit=1)[0]
    found = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table)
    return {name: [re.sub("<.*?>", "", cell) for cell in cells.split("</td>")[:-1]] for name, cells in found}


def test_curves_are_drawn_over_each_other_with_the_name_of_each_run(tmp_path: Path) -> None:
    text = page(a_run(tmp_path / "a", "first", *TRAINED), a_run(tmp_path / "b", "second", *TRAINED))
    figures = text.split("<figure>")[1:]
    assert [re.findall("<figcaption>(.*?) <span>", figure)[0] for figure in figures] == ["loss", "accuracy"]
    for figure in figures:
        assert ">first</text>" in figure
        assert ">second</text>" in figure
        assert {"var(--series-0)", "var(--series-1)"} <= set(re.findall(r"var\(--series-\d\)", figure))


def test_of_a_run_whose_loss_only_its_log_shows_the_last_one_is_told(tmp_path: Path) -> None:
    counted = [line("progress", 1, step, at=step) for step in (1, 2, 3)]
    runs = [find(a_run(tmp_path / name, name, *counted)) for name in ("first", "second")]
    shown = Start(Record(ZERO, "started", 1, 0, {}), [Record(ZERO, "progress", 1, 3, {"loss": 0.125})])
    text = compare([runs[0], replace(runs[1], printed=Records([shown]))], ZERO)
    assert rows(text, "Results")["Loss"] == ["", "0.125"]


def test_a_run_has_the_same_colour_in_all_figures(tmp_path: Path) -> None:
    silent = a_run(tmp_path / "a", "silent")
    text = page(silent, a_run(tmp_path / "b", "second", *TRAINED))
    (figure, _) = text.split("<figure>")[1:]
    assert "var(--series-1)" in figure
    assert "var(--series-0)" not in figure
    assert '<span class="run-1">second</span>' in text


def test_what_differs_stands_apart_from_what_is_the_same(tmp_path: Path) -> None:
    same = {"host": "node", "versions": {"torch": "2.9"}}
    first = a_run(tmp_path / "a", "first", *TRAINED, env={"LR": "0.1", "SEED": "1"}, options={"lr": 0.1}, **same)
    second = a_run(tmp_path / "b", "second", *TRAINED, env={"SEED": "1"}, options={"lr": 0.2}, **same)
    text = page(first, second)
    assert rows(text, "Differences") == {
        "Command": ["python first.py", "python second.py"],
        "Options: lr": ["0.1", "0.2"],
        "Variables of the template: LR": ["0.1", ""],
    }
    assert '<th scope="row">Versions: torch</th><td class="text">2.9</td>' in text.split("The same in all")[1]
    assert rows(text, "Results")["Step"] == ["3", "3"]
    assert "Command" not in rows(text, "Results")


def test_what_is_not_known_of_a_run_is_no_difference(tmp_path: Path) -> None:
    first = a_run(tmp_path / "a", "run", *TRAINED, versions={"torch": "2.9"})
    second = a_run(tmp_path / "b", "run")
    third = a_run(tmp_path / "c", "run", *TRAINED, versions={"torch": "2.10"})
    assert "Versions: torch" not in page(first, second).split("The same in all")[0]
    assert rows(page(first, second, third), "Differences") == {"Versions: torch": ["2.9", "unknown", "2.10"]}
    assert "None in what is known" in page(first, second)


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    text = page(*(a_run(tmp_path / name, "digits", *TRAINED) for name in "abc"))
    assert re.findall('<span class="run-.">(.*?)</span>', text)[:3] == ["digits", "digits (2)", "digits (3)"]


def test_a_secret_of_one_run_is_masked_in_all(tmp_path: Path) -> None:
    first = a_run(tmp_path / "a", "first", env={"WANDB_API_KEY": "not-to-be-seen"})
    second = a_run(tmp_path / "b", "second", env={"NOTE": "uses not-to-be-seen"})
    for text in (page(first, second), page(second, first)):
        assert "not-to-be-seen" not in text
        assert "uses •••" in text


HOSTILE = '</style><script>alert(1)</script>"\u202e\x1b[31m$x$'


def test_names_and_values_of_others_are_text(tmp_path: Path) -> None:
    lines = [line("progress", 1, step, at=step, loss=1.0, metrics={HOSTILE: 1.0}) for step in (1, 2)]
    runs = [
        write(tmp_path / name / "progress.jsonl", line("started", 1, 0, options={HOSTILE: said}), *lines).parent
        for name, said in (("_a", HOSTILE), ("<b>b", "1"))
    ]
    text = page(*runs)
    assert not re.findall("<(?:script|b)>", text)
    assert not set(text) & {"\u202e", "\x1b"}
    assert str(escape("<script>")) in text
    assert "> _a</text>" in text, "matplotlib leaves out labels that begin with an underscore"


def test_runs_without_a_step_have_no_curves(tmp_path: Path) -> None:
    assert "No curves: no step" in page(a_run(tmp_path / "a", "first"), a_run(tmp_path / "b", "second"))
