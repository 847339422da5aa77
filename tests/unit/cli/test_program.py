"""What `ddpjob run`, `init` and `validate` take, and what a mistake gets: one message, exit code 2, nothing made."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ddpjob_operator.api.manifest import read
from ddpjob_operator.cli.main import main

JOB = """
apiVersion: ddpjob.dev/v1alpha1
kind: DDPJob
metadata: {name: digits}
spec: {template: {spec: {containers: [{name: trainer, image: any, command: [ddpjob-train]}]}}}
"""
FILES = {
    "train.py": "print('trains')\n",
    "typo.py": "import torch\nmodel = (\n",
    "trainer": "#!/usr/bin/env python\nprint('trains')\n",
    "train.sh": "python train.py\n",
    "train.ipynb": "{}\n",
    "job.yaml": JOB,
    "wrong.yaml": JOB.replace("spec: {", "spec: {nodes: 0, "),
    "package/__init__.py": "raise SystemExit('imported')\n",
    "package/train.py": "",
    "package/model/__init__.py": "",
}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    here = tmp_path / "here"
    for name, text in FILES.items():
        file = here / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(here)
    yield here
    assert not (tmp_path / "state").exists()
    assert not (here / "ddpjob-runs").exists()


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["ddpjob", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run", "name a script, a module after -m, or a command after --; see: ddpjob run --help"),
        ("run --", "name a script, a module after -m, or a command after --; see: ddpjob run --help"),
        ("run trian.py", "there is no trian.py in {here}; did you mean train.py?"),
        ("run train -n 2", "there is no train in {here}; did you mean train.py?"),
        ("run python train.py", "unrecognized arguments: train.py; a command stands after --: ddpjob run -- python"),
        ("run torchrun -- train.py", "a command stands after --: ddpjob run -- torchrun train.py"),
        ("run package", "package is a directory; name a script in it: package/__init__.py, package/train.py"),
        ("run train.sh", "train.sh is a shell script; run it as a command: ddpjob run -- bash train.sh"),
        ("run train.ipynb", "is a notebook; make a script of it first: jupyter nbconvert --to script train.ipynb"),
        ("run typo.py", "typo.py is not Python: line 2: '(' was never closed"),
        ("run train.py --lr 1", "--lr 1; the script's own stand after --: ddpjob run train.py -- --lr 1"),
        ("run train.py data -- -v", "data; the script's own stand after --: ddpjob run train.py -- data -v"),
        ("run -- --nodes 2 train.py", "--nodes stands after --, where a command begins; options stand before --"),
        ("run -- train.py --lr 1", "train.py is a script; run it with: ddpjob run train.py -- --lr 1"),
        ("run -- nosuchprogram", "nosuchprogram: no such program on PATH"),
        ("run train.py --nodes 0", "--nodes: 0 is too small; it must be at least 1"),
        ("run train.py --nodes two", "argument -n/--nodes: invalid int value: 'two'"),
        ("run train.py --env FOO", "--env FOO: must be NAME=VALUE"),
        ("run train.py --name My_Run", "--name: 'My_Run' does not have the right form"),
        ("run train.py --checkpoint job.yaml", "--checkpoint: job.yaml is no directory"),
        ("run train.py -m package.train", "train.py and -m package.train are two programs; name one of them"),
        ("run -m train.py", "-m train.py: a script is named without -m, and a module without .py"),
        ("run -m package.tarin", "-m package.tarin: there is no module package.tarin in {here}"),
        ("run -m package.model", "-m package.model is a package without __main__; name a module in it"),
        ("run train.py -o yaml", "-o yaml prints what would run; add --dry-run"),
        ("run job.yaml --nodes 2", "--nodes is for scripts; job.yaml says what is run: edit it instead"),
        ("run job.yaml -- --lr 1", "-- is for scripts; job.yaml says what is run: edit it instead"),
        ("run --resume train", "no runs under ddpjob-runs; start one with: ddpjob run"),
        ("run train.py --resume train", "train.py cannot stand beside --resume"),
        ("run --resume train -n 2", "--nodes cannot stand beside --resume"),
        ("init job.yaml", "job.yaml is a YAML file already; check it with: ddpjob validate job.yaml"),
        ("init train.py -o job.yaml", "job.yaml is there already; remove it, or choose another with --output"),
        ("validate wrong.yaml nowhere.yaml", "spec.nodes: 0 is too small"),
        ("validate job.yaml nowhere.yaml", "cannot read nowhere.yaml: No such file or directory"),
    ],
)
def test_a_mistake_gets_one_message(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *words.split()) == 2
    said = capsys.readouterr().err
    assert message.format(here=Path.cwd()) in said
    assert said.count("error: ") == (2 if "wrong.yaml" in words else 1)
    assert "Traceback" not in said


@pytest.mark.parametrize("words", ["run train.py", "run -m package.train"])
def test_a_python_without_torch_is_named(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    assert call(monkeypatch, *words.split()) == 2
    assert f"{sys.executable} lacks torch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("train.py", ["ddpjob-supervise", "train.py"]),
        ("train.py -- -n 3", ["ddpjob-supervise", "train.py", "-n", "3"]),
        ("trainer", ["ddpjob-supervise", "trainer"]),
        ("-m package.train -- x", ["ddpjob-supervise", "-m", "package.train", "x"]),
        ("-- torchrun train.py -- x", ["torchrun", "train.py", "--", "x"]),
    ],
)
def test_the_dry_run_prints_the_ddpjob_that_it_is(
    words: str, runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "--dry-run", "-o", "yaml", "-n", "2", *words.split()) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["spec"]["nodes"] == 2
    assert document["spec"]["checkpoint"] == {"path": "/checkpoints"}
    container = document["spec"]["template"]["spec"]["containers"][0]
    assert [*container["command"], *container.get("args", [])] == runs


def test_a_dry_run_of_a_file_prints_it_and_without_o_says_what_it_would_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "job.yaml", "--dry-run", "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(JOB)
    assert call(monkeypatch, "run", "job.yaml", "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.startswith("digits: 1 node x 1 process, backend gloo (on CPU: 0 GPUs for 1 rank")
    assert said.endswith(") (dry run)\n")


def test_init_writes_a_valid_file_with_a_comment_on_each_field(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["-n", "2", "--max-restarts", "3", "--env", "SEED=7", "--", "--lr", "0.1"]
    assert call(monkeypatch, "init", "train.py", *options) == 0
    assert capsys.readouterr().out == "written: train.yaml\n"
    text = (directory / "train.yaml").read_text()
    assert call(monkeypatch, "run", "train.py", "--dry-run", "-o", "yaml", *options) == 0
    dry = yaml.safe_load(capsys.readouterr().out)
    dry["spec"] |= {"procsPerNode": 1}
    assert read(directory / "train.yaml").document == dry == yaml.safe_load(text)
    lines = text.splitlines()
    for field in ("nodes", "procsPerNode", "restart", "checkpoint", "template", "image", "command", "args", "env"):
        at = next(index for index, line in enumerate(lines) if line.strip().startswith(f"{field}:"))
        assert lines[at - 1].strip().startswith("# "), field


def test_validate_says_of_each_file_that_it_is_valid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "validate", "job.yaml") == 0
    assert capsys.readouterr().out == "job.yaml: DDPJob digits is valid\n"
