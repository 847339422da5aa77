"""What the commands take, and what a mistake gets: one message, exit code 2, nothing made."""

import importlib.util
import io
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ddpjob_operator.api.job_file import read
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.main import main

JOB = """
apiVersion: ddpjob.dev/v1alpha2
kind: DDPJob
metadata: {name: digits}
spec: {template: {spec: {containers: [{name: trainer, image: any, command: [ddpjob-train]}]}}}
"""
QUOTED = "is one word; without the quotes it is"
SHELL = "python train.py' is a line for a shell"
NO_NAMESPACE = "-n is a namespace of a cluster, and {} uses none"
INSTEAD = ": for processes give --procs-per-node 2, for nodes --nodes 2"
LONG = "x" * 300
"""A file that nobody can look at, root neither."""
FILES = {
    "train.py": "print('trains')\n",
    "typo.py": "import torch\nmodel = (\n",
    "trainer": "#!/usr/bin/env python\nprint('trains')\n",
    "train.sh": "python train.py\n",
    "train.ipynb": "{}\n",
    "job.yaml": JOB,
    "wrong.yaml": JOB.replace("spec: {", "spec: {nodes: 0, "),
    "text.yaml": JOB.replace("spec: {", "spec: {nodes: '2', "),
    "field.yaml": JOB.replace("spec: {", "spec: {nodse: 2, "),
    "port.yaml": JOB.replace("spec: {", "spec: {network: {masterPort: 99999}, "),
    "long.yaml": JOB.replace("digits", "d" * 80),
    "capital.yaml": JOB.replace("digits", "Digits"),
    "nameless.yaml": JOB.replace("name: digits", ""),
    "container.yaml": JOB.replace("trainer", "main"),
    "image.yaml": JOB.replace(", command: [ddpjob-train]", ""),
    "version.yaml": JOB.replace("v1alpha2", "v1"),
    "two.yaml": f"{JOB}---{JOB}",
    "pod.yaml": "apiVersion: v1\nkind: Pod\n",
    "list.yaml": "- nodes\n",
    "empty.yaml": "",
    "broken.yaml": "a: [b\n",
    "control.yaml": "kind: \x07\n",
    "tabs.yaml": "a:\n\tb: c\n",
    "nested.py": "-" * 100_000 + "1\n",
    "broken.json": '{"kind": "DDPJob"',
    "kube": "{apiVersion: v1, kind: Config, current-context: here, contexts: [{name: here, context: {cluster: c}}]}",
    "taken/train/job.json": "",
    "taken/train/lock": "",
    "package/__init__.py": "raise SystemExit('imported')\n",
    "package/train.py": "",
    "alone.py": "from .data import load\n",
    "package/model/__init__.py": "",
    "package/model/fit.py": "import os\nfrom ..data import load\n",
    "package/model/both.py": "try:\n    from ..data import load\nexcept ImportError:\n    from data import load\n",
}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    here = tmp_path / "here"
    for name, text in FILES.items():
        file = here / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (here / "model.pt").write_bytes(b"PK\x03\x04\xff")
    (here / "binary.py").write_bytes(b"\xff\xfe")
    (here / "link.py").symlink_to("nowhere.py")
    os.mkfifo(here / "pipe.py")
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
        ("run train --nodes 2", "there is no train in {here}; did you mean train.py?"),
        ("run python train.py", "put a command after --, as in: ddpjob run -- python train.py"),
        ("run torchrun -- train.py", "put a command after --, as in: ddpjob run -- torchrun train.py"),
        ("run package", "package is a directory; name a script in it: package/__init__.py, package/train.py"),
        ("run train.sh", "train.sh is a shell script; run it as a command: ddpjob run -- bash train.sh"),
        ("run train.ipynb", "is a notebook; make a script of it first: jupyter nbconvert --to script train.ipynb"),
        (f"run {LONG}.py", f"File name too long: {LONG}.py"),
        (f"run {LONG}", f"File name too long: {LONG}"),
        (f"run train.py --checkpoint {LONG}", f"File name too long: {LONG}"),
        ("run nested.py", "nested.py has an expression that is nested too deeply for Python"),
        ("run typo.py", "typo.py is not Python: line 2: '(' was never closed"),
        ("run package/model/fit.py", "fit.py has a relative import in line 2; run it as: -m package.model.fit"),
        (
            "run alone.py",
            (
                "alone.py has a relative import in line 1; run it with -m, from a directory where its package "
                "can be imported"
            ),
        ),
        (
            "run train.py --lr 1",
            "--lr 1; put the script's own arguments after --, as in: ddpjob run train.py -- --lr 1",
        ),
        (
            "run train.py data -- -v",
            "data; put the script's own arguments after --, as in: ddpjob run train.py -- data -v",
        ),
        ("run -- --nodes 2 train.py", "--nodes comes after --, where a command begins; options go before --"),
        ("run -- train.py --lr 1", "train.py is a script; run it with: ddpjob run train.py -- --lr 1"),
        ("run -- train.py 'a b'", "train.py is a script; run it with: ddpjob run train.py -- 'a b'"),
        ("run -- 'python train.py'", f"'python train.py' {QUOTED}: ddpjob run -- python train.py"),
        ("init -- 'python train.py' --lr 1", f"'python train.py' {QUOTED}: ddpjob init -- python train.py --lr 1"),
        ("run -- 'train.py --lr 1' x", f"'train.py --lr 1' {QUOTED}: ddpjob run train.py -- --lr 1 x"),
        ("run 'train.py --lr 1' -- x", f"'train.py --lr 1' {QUOTED}: ddpjob run train.py -- --lr 1 x"),
        ("run 'python train.py'", f"'python train.py' {QUOTED}: ddpjob run -- python train.py"),
        ("init 'bash  \"a b\"'", f"""'bash  "a b"' {QUOTED}: ddpjob init -- bash 'a b'"""),
        ("run -- 'cd x && python train.py'", f"'cd x && {SHELL}: ddpjob run -- bash -c 'cd x && python train.py'"),
        ("run -- 'LR=1 python train.py' x", "is a line for a shell: ddpjob run -- bash -c 'LR=1 python train.py x'"),
        ("run -- 'it''s \"odd'", "no such program on PATH"),
        ("init python -- 'a b'", "put a command after --, as in: ddpjob init -- python 'a b'"),
        ("init train.sh -- 'a b'", "run it as a command: ddpjob init -- bash train.sh 'a b'"),
        ("run -- ''", "'': no such program on PATH"),
        ("run train.py --checkpoint ''", "argument --checkpoint: must not be empty"),
        ("run train.py --run-dir ''", "argument --run-dir: must not be empty"),
        ("rm train ''", "argument NAME: must not be empty"),
        (
            "run /dev/stdin",
            "/dev/stdin is not a regular file; save its content to a regular file, and name that file",
        ),
        ("run pipe.py", "pipe.py is not a regular file; save its content to a regular file, and name that file"),
        (
            "run control.yaml",
            "control.yaml is not YAML: unacceptable character #x0007: special characters are not allowed in",
        ),
        (
            "status --local --run-dir taken",
            "taken/train/job.json is damaged or from another version: it holds no DDPJob. Remove the run with:",
        ),
        ("run -- nosuchprogram", "nosuchprogram: no such program on PATH"),
        ("run train.py --nodes 0", "--nodes: 0 is too small; it must be at least 1"),
        ("run train.py --nodes two", "argument --nodes: two is not a whole number, such as 2"),
        ("run train.py --env FOO", "--env FOO: must be NAME=VALUE"),
        ("run train.py --name My_Run", "--name: 'My_Run' must be at most 52 lower-case letters"),
        ("run train.py --checkpoint job.yaml", "--checkpoint: job.yaml is not a directory"),
        (
            "run train.py --checkpoint s3://me:key@bucket",
            "--checkpoint: must be an absolute path, or a URL such as s3",
        ),
        (
            "init train.py --checkpoint file:///x",
            "--checkpoint: must be an absolute path, or a URL such as s3://BUCK",
        ),
        ("run train.py -m package.train", "train.py and -m package.train are two programs; name only one of them"),
        ("run -m train.py", "-m train.py: a script is named without -m, and a module without .py"),
        ("run -m package.tarin", "-m package.tarin: there is no module package.tarin in {here}"),
        ("run -m package.model", "-m package.model is a package without __main__; name a module in it"),
        ("run train.py -o yaml", "-o yaml works only with --dry-run; add it"),
        (
            "run --lr 1 train.py",
            "--lr 1; put the script's own arguments after --, as in: ddpjob run train.py -- --lr 1",
        ),
        ("run --nodes 2 train.py --lr=1", "after --, as in: ddpjob run --nodes 2 train.py -- --lr=1"),
        ("run --nproc_per_node gpu train.py", "--nproc_per_node: gpu is not a whole number, such as 2"),
        ("run train.py -n 2", f"{NO_NAMESPACE.format('run')}{INSTEAD}"),
        ("run -n2 train.py", f"{NO_NAMESPACE.format('run')}{INSTEAD}"),
        ("init train.py -n=2 -- -n 3", f"{NO_NAMESPACE.format('init')}{INSTEAD}"),
        ("run train.py -n 1e9", "-n is for a cluster, but run is for this machine; on a cluster: ddpjob submit"),
        ("run train.py -n", "-n is for a cluster, but run is for this machine; on a cluster: ddpjob submit"),
        ("init -n team train.py", "-n is for a cluster, but init is for this machine"),
        (
            "ls --kubeconfig kube",
            "--kubeconfig is for a cluster, but ls is for this machine; on a cluster: ddpjob st",
        ),
        ("ls -A", "-A is for a cluster, but ls is for this machine; on a cluster: ddpjob status"),
        (
            "report digits --kubeconfig=kube",
            "--kubeconfig is for a cluster, but report is for this machine; copy the job's checkpoint directory here",
        ),
        (
            "stop digits --cluster",
            "--cluster is for a cluster, but stop is for this machine; on a cluster: ddpjob su",
        ),
        ("rm digits -n 2", "-n is for a cluster, but rm is for this machine; on a cluster: ddpjob delete"),
        ("validate job.yaml --context here", "--context is for a cluster, but validate is for this machine; on a c"),
        (
            "submit job.yaml --run-dir x",
            "--run-dir is for this machine, but submit is for a cluster; on this machine",
        ),
        ("submit train.py --attach 0", "--attach is for this machine, but submit is for a cluster; on this machine"),
        (
            "version --local",
            "--local is for this machine, but version is for a cluster; this command's own version: ddpjob",
        ),
        (
            "cancel digits --local",
            "--local is for this machine, but cancel is for a cluster; on this machine: ddpjob stop",
        ),
        ("suspend digits --run-dir x", "but suspend is for a cluster; on this machine: ddpjob stop"),
        ("scale digits --nodes 2 --local", "on this machine: ddpjob stop, and run again with --nodes"),
        (f"run train.py -n {'9' * 5000}", "-n is for a cluster, but run is for this machine"),
        ("run train.py -nr 0", "-nr 0; put the script's own arguments after --, as in: ddpjob run train.py -- -nr 0"),
        ("run --nnodes=2 train.py -- -v", "--nnodes=2; with ddpjob it is: ddpjob run --nodes=2 train.py -- -v"),
        ("run --node_rank 0 train.py", "--node_rank 0; with ddpjob it is: ddpjob run train.py"),
        (
            "run --standalone --master-port=1 train.py",
            "--standalone --master-port=1; with ddpjob it is: ddpjob run train.py",
        ),
        ("run --gpus 2 train.py", "--gpus; with ddpjob it is: ddpjob run --procs-per-node 2 train.py"),
        ("submit --nnodes 2 train.py", "--nnodes; with ddpjob it is: ddpjob submit --nodes 2 train.py"),
        (
            "run --nnodes 2 train.py --lr 1",
            "--lr 1; put the script's own arguments after --, as in: ddpjob run --nodes 2 train.py -- --lr 1",
        ),
        (
            "run python -m torch.distributed.run train.py",
            "after --, as in: ddpjob run -- python -m torch.distributed.run train.py",
        ),
        ("run torchrun -n 2 train.py", "after --, as in: ddpjob run -- torchrun -n 2 train.py"),
        (
            "run --nodes 2 torchrun --nnodes 2 train.py",
            "after --, as in: ddpjob run --nodes 2 -- torchrun --nnodes 2 train.py",
        ),
        ("run train.py --env-from s", "leave out --env-from: on this machine ranks have the variables of your shell"),
        ("run -f job.yaml", "-f; leave out -f: give the file's name alone"),
        ("run train.py --nodes", "argument --nodes: expected one argument; see: ddpjob run --help"),
        ("run train.py --nodes 1e9", "argument --nodes: 1e9 is not a whole number, such as 2"),
        ("run train.py --nodes 2.5", "argument --nodes: 2.5 is not a whole number, such as 2"),
        ("run train.py --nodes -1", "--nodes: -1 is too small; it must be at least 1"),
        ("run train.py --nodes 1000000000", "--nodes: 1000000000 is too large; it must be at most 4096"),
        ("run train.py --procs-per-node 0", "--procs-per-node: 0 is too small; it must be at least 1"),
        ("run train.py --max-restarts -1", "--max-restarts: -1 is too small; it must be at least 0"),
        ("run train.py --env RANK=1", "--env: RANK is set by DDPJob itself; remove it"),
        (f"run train.py --name {'x' * 60}", "x' must be at most 52 lower-case letters"),
        (
            "run train.py --name train --run-dir taken",
            "there is a run named train already. Go on with it: ddpjob run",
        ),
        (
            "run train.py --run-dir job.yaml",
            "cannot write the run directory {here}/job.yaml/train: Not a directory; choose another with --run-dir",
        ),
        ("run link.py", "link.py is a link to nowhere.py, which does not exist"),
        ("run binary.py", "binary.py is not Python: line 1: (unicode error) 'utf-8' codec can't decode byte 0xff"),
        ("run -", "- is not a regular file; save its content to a regular file, and name that file"),
        (
            "run https://a.example/job.yaml",
            "https://a.example/job.yaml is not a regular file; save its content to a regular file, and",
        ),
        ("run -m ..train", "-m ..train: must be the name of a module, such as package.train"),
        ("run model.pt", "cannot read model.pt: it is not UTF-8 text"),
        ("run empty.yaml", "empty.yaml must hold exactly one object of kind DDPJob, but holds nothing"),
        ("run list.yaml", "list.yaml must hold exactly one object of kind DDPJob, but holds a list"),
        ("run pod.yaml", "pod.yaml must hold exactly one object of kind DDPJob, but holds Pod"),
        ("run two.yaml", "two.yaml must hold exactly one object of kind DDPJob, but holds DDPJob, DDPJob"),
        ("run broken.yaml", "broken.yaml is not YAML: line 2: expected ',' or ']'"),
        ("run tabs.yaml", "tabs.yaml is not YAML: line 2: found character '\\t' that cannot start any token"),
        ("run broken.json", "broken.json is not YAML: line 1: expected ',' or '}}'"),
        ("run version.yaml", "line 2: apiVersion: 'ddpjob.dev/v1' must be ddpjob.dev/v1alpha2"),
        ("run text.yaml", "line 5: spec.nodes: '2' must be a whole number"),
        ("run field.yaml", "line 5: spec.nodse: unknown field; did you mean nodes?"),
        ("run port.yaml", "line 5: spec.network.masterPort: 99999 is too large; it must be at most 65535"),
        ("run long.yaml", "d' must be at most 52 lower-case letters"),
        ("run capital.yaml", "line 4: metadata.name: 'Digits' must be at most 52 lower-case letters"),
        ("run nameless.yaml", "line 4: metadata.name: is missing: Name of the job"),
        ("run container.yaml", "needs a container named trainer, which runs the training; it has main"),
        ("run image.yaml", "containers[trainer].command: is missing; on this machine there is no image"),
        ("run job.yaml --lr 1", "--lr 1; job.yaml says what to run: edit it instead"),
        ("run job.yaml wrong.yaml", "wrong.yaml; job.yaml says what to run: edit it instead"),
        ("train.py", "there is no command train.py; to run it: ddpjob run train.py"),
        ("--nodes 2 train.py", "the command comes first: ddpjob run --nodes 2 train.py"),
        ("-n team status digits", "the command comes first: ddpjob status -n team digits"),
        ("get ddp", "there is no command get; did you mean status?"),
        ("apply -f job.yaml", "there is no command apply; did you mean submit?"),
        ("runn train.py", "there is no command runn; did you mean run?"),
        ("help nothing", "there is no command nothing; see: ddpjob help"),
        ("status one two", "unrecognized arguments: two; see: ddpjob status --help"),
        ("status -o yaml", "argument -o/--output: invalid choice: 'yaml' (choose from"),
        ("status -o wide", "no runs under ddpjob-runs; start one with: ddpjob run FILE"),
        ("status nothing", "no runs under ddpjob-runs; start one with: ddpjob run FILE"),
        ("status --local", "no runs under ddpjob-runs; start one with: ddpjob run FILE"),
        ("status nothing --run-dir taken", "no run named nothing under taken; there is train"),
        (
            "status --local --cluster",
            "--local is for runs on this machine and --cluster for a cluster; give only one of them",
        ),
        ("status --kubeconfig nowhere", "no kubeconfig nowhere; name a file that exists"),
        ("status --kubeconfig job.yaml", "job.yaml names no context; is it a kubeconfig?"),
        ("status --kubeconfig kube --context there", "no context named there in kube; did you mean here?"),
        ("logs digits --local", "no runs under ddpjob-runs; start one with: ddpjob run FILE"),
        ("logs ddp/digits -f", "kubectl takes a kind and a name, ddpjob only the job's name: ddpjob logs digits -f"),
        ("logs digits -c trainer", "-c trainer; leave out -c: the only logs are those of the container trainer"),
        ("logs digits --tail x", "argument --tail: x is not a number of lines; -1 means all"),
        ("logs digits -p --attempt 1", "argument --attempt: not allowed with argument -p/--previous"),
        ("delete", "the following arguments are required: NAME; see: ddpjob delete --help"),
        ("delete ddp digits", "kubectl takes a kind and a name, ddpjob only the job's name: ddpjob delete digits"),
        ("delete digits --wait=perhaps", "argument --wait: invalid choice: 'perhaps' (choose from"),
        ("delete digits --all", "--all; leave out --all: name each of them"),
        ("rm -rf digits", "-rf; leave out -rf: nothing here needs it"),
        ("stop nothing", "no runs under ddpjob-runs; start one with: ddpjob run FILE"),
        ("scale digits --replicas 2", "--replicas; with ddpjob it is: ddpjob scale digits --nodes 2"),
        ("scale digits", "the following arguments are required: --nodes; see: ddpjob scale --help"),
        ("init train.py -o package", "package exists already; remove it, or choose another with --output"),
        ("init train.py -o nowhere/x.yaml", "cannot write nowhere/x.yaml: No such file or directory; choose another"),
        ("validate package", "cannot read package: Is a directory"),
        (
            "run --start-method cold -- bash train.sh",
            "--start-method is for scripts and modules; a command starts its processes itself",
        ),
        ("run train.py --start-method hot", "argument --start-method: invalid choice: 'hot' (choose from"),
        ("run job.yaml --start-method cold", "--start-method is for scripts; job.yaml says what to run"),
        ("run job.yaml --nodes 2", "--nodes is for scripts; job.yaml says what to run: edit it instead"),
        ("run job.yaml -- --lr 1", "-- is for scripts; job.yaml says what to run: edit it instead"),
        ("run --resume train", "no runs under ddpjob-runs; start one with: ddpjob run"),
        ("run train.py --resume train", "train.py cannot be given with --resume"),
        ("run --resume train --nodes 2", "--nodes cannot be given with --resume"),
        ("run --resume train --every 10", "--every 10 cannot be given with --resume"),
        ("run --every 10 --resume=train -- --lr 1", "--every 10 cannot be given with --resume"),
        ("run train.py --resume train --every=10", "train.py --every=10 cannot be given with --resume"),
        ("run --resume train --nnodes 2", "error: --nnodes cannot be given with --resume"),
        ("init job.yaml", "job.yaml is a YAML file already; check it with: ddpjob validate job.yaml"),
        ("init train.py -o job.yaml", "job.yaml exists already; remove it, or choose another with --output"),
        ("validate wrong.yaml nowhere.yaml", "spec.nodes: 0 is too small"),
        ("validate job.yaml nowhere.yaml", "cannot read nowhere.yaml: No such file or directory"),
    ],
)
def test_a_mistake_gets_one_message(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *shlex.split(words)) == 2
    said = capsys.readouterr().err
    assert message.format(here=Path.cwd()) in said
    assert said.count("error: ") == (2 if words == "validate wrong.yaml nowhere.yaml" else 1)
    assert "Traceback" not in said


@pytest.mark.parametrize("words", ["submit job.yaml", "delete digits --cluster", "status --cluster"])
def test_without_a_cluster_it_is_said_how_to_name_one(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *words.split()) == 2
    said = "no cluster is named: there is no kubeconfig at nowhere (KUBECONFIG)."
    assert capsys.readouterr().err == f"error: {said} Set KUBECONFIG to yours, or give --kubeconfig FILE\n"


ANYWHERE = (
    *("status", "status -w", "status --stacks", "logs", "logs -f", "checkpoint", "suspend", "resume"),
    *("scale --nodes 2", "delete"),
)
"""Calls of the commands for a job that may be on this machine or on a cluster, without its name."""


@pytest.mark.parametrize("command", ANYWHERE)
def test_without_a_cluster_a_name_that_nobody_has_is_first_a_run_that_does_not_exist(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *command.split(), "nothing") == 2
    here = "no runs under ddpjob-runs; start one with: ddpjob run FILE"
    assert capsys.readouterr().err == (
        f"error: {here}. If the job is on a cluster, set KUBECONFIG, or give --kubeconfig\n"
    )


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
        ("--start-method cold trainer", ["ddpjob-supervise", "--start-method", "cold", "trainer"]),
        (
            "--start-method warm -m package.train -- x",
            ["ddpjob-supervise", "--start-method", "warm", "-m", "package.train", "x"],
        ),
        ("-- torchrun train.py -- x", ["torchrun", "train.py", "--", "x"]),
    ],
)
def test_the_dry_run_prints_the_ddpjob_that_it_is(
    words: str, runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "--dry-run", "-o", "yaml", "--nodes", "2", *words.split()) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["spec"]["nodes"] == 2
    assert document["spec"]["checkpoint"] == {"path": "/checkpoints"}
    container = document["spec"]["template"]["spec"]["containers"][0]
    assert [*container["command"], *container.get("args", [])] == runs


def test_a_url_is_passed_on_as_it_is_without_a_volume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "--dry-run", "-o", "yaml", "train.py", "--checkpoint", "s3://b/train/") == 0
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["checkpoint"] == {"path": "s3://b/train/"}


@pytest.mark.parametrize("flag", ["--procs-per-node 2", "--nproc-per-node 2", "--nproc_per_node=2"])
@pytest.mark.parametrize("command", ["run", "init", "submit"])
def test_processes_are_asked_for_as_of_torchrun(command: str, flag: str) -> None:
    assert parse([command, *flag.split(), "train.py"]).procs_per_node == 2


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
    options = ["--nodes", "2", "--max-restarts", "3", "--env", "SEED=7", "--", "--lr", "0.1"]
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


def test_what_is_validated_from_the_input_may_be_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert call(monkeypatch, "validate", "-") == 2
    assert capsys.readouterr().err == "error: cannot read standard input: it is not UTF-8 text\n"


@pytest.mark.parametrize("words", ["run train.py", "ls", "status", "init train.py"])
def test_in_a_directory_that_was_removed_nothing_is_done(
    words: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "gone").mkdir()
    monkeypatch.chdir("gone")
    (directory / "gone").rmdir()
    assert call(monkeypatch, *words.split()) == 2
    said = "error: cannot use the current directory (No such file or directory); cd to another one\n"
    assert capsys.readouterr().err == said


def test_a_run_whose_file_is_damaged_hides_no_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = directory / "taken" / "good" / "job.json"
    good.parent.mkdir()
    good.write_text(json.dumps(yaml.safe_load(JOB)))
    assert call(monkeypatch, "ls", "--run-dir", "taken") == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["NAME", "digits"]
    assert said.err.startswith(
        f"warning: {directory}/taken/train/job.json is damaged or from another version: it holds no DDPJob."
    )
