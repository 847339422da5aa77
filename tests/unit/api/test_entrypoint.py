"""A DDPJob from a script, a module or a command."""

import re
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError, DDPJob, launchers
from ddpjob_operator.api.contract import MAX_ENV
from ddpjob_operator.api.entrypoint import (
    OPTIONS,
    Entrypoint,
    Options,
    command,
    document_of,
    job_name,
    module,
    script,
)
from ddpjob_operator.api.job_file import parse, written
from ddpjob_operator.api.launchers import Size
from ddpjob_operator.api.rules import RULES, Rule

IMAGE = "ddpjob-trainer:0.1.0"
TYPED = {".".join(map(str, path)).replace(".0", "[]") for path in OPTIONS}
"""The fields that options set."""
CLUSTERS_WORDS = re.compile(r"\b(template|[Pp]ods?|Service|container|envFrom|spec)\b")


def trainer(document: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = document["spec"]["template"]["spec"]["containers"][0]
    return container


def of(entrypoint: Entrypoint, **options: Any) -> dict[str, Any]:
    return document_of(entrypoint, Options(IMAGE, **options))


def test_a_script_becomes_the_ddpjob_that_one_would_write() -> None:
    document = of(
        script("src/train.py", ["--lr", "0.1"]),
        size=Size(2, 4),
        env=["SEED=7", "EMPTY="],
        max_restarts=3,
        checkpoint={"path": "/checkpoints"},
    )
    assert document == yaml.safe_load("""
        apiVersion: ddpjob.dev/v1alpha2
        kind: DDPJob
        metadata:
          name: train
        spec:
          nodes: 2
          procsPerNode: 4
          restart: {maxRestarts: 3}
          checkpoint: {path: /checkpoints}
          template:
            spec:
              containers:
                - name: trainer
                  image: ddpjob-trainer:0.1.0
                  command: [ddpjob-supervise, src/train.py]
                  args: [--lr, "0.1"]
                  env: [{name: SEED, value: "7"}, {name: EMPTY, value: ""}]
    """)
    assert parse(written(document), "itself").job == DDPJob.from_dict(document)


def test_what_is_not_said_does_not_stand_there() -> None:
    assert set(of(script("train.py"))["spec"]) == {"template"}


@pytest.mark.parametrize(
    ("entrypoint", "name"),
    [
        (script("train.py"), "train"),
        (script("src/My_Train.v2.py"), "my-train-v2"),
        (script("01_train_.py"), "train"),
        (script("训练.py"), "job"),
        (script(f"{'long-' * 20}.py"), "long-long-long-long-long-long-long-long-long-l"),
        (module("package.train"), "train"),
        (module("package.__main__"), "package"),
        (command(["torchrun", "--nproc-per-node", "2", "src/ddp.py", "--data", "x.py"]), "ddp"),
        (command(["python", "-m", "torch.distributed.run", "-m", "package.train"]), "train"),
        (command(["/opt/bin/Train.sh"]), "train"),
    ],
)
def test_a_job_is_called_after_what_it_runs(entrypoint: Entrypoint, name: str) -> None:
    assert of(entrypoint)["metadata"]["name"] == name


def test_a_name_leaves_room_for_a_number() -> None:
    of(script("train.py"), name=f"{job_name('x' * 99)}-99999")


@pytest.mark.parametrize("text", ["$(HOME)", "$$", "a$b", "$$(x)$", "100$", "$(NODE_RANK)"])
def test_arguments_and_variables_arrive_as_they_were_typed(text: str) -> None:
    from ddpjob_operator.local.process_spec import _expanded  # noqa: PLC0415  As a kubelet expands them.

    document = trainer(of(script("train.py", [text]), env=[f"X={text}"]))
    known = {"NODE_RANK": "0", "HOME": "/home"}.get
    assert _expanded(document["args"][0], known) == text
    assert _expanded(document["env"][0]["value"], known) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": Size(0)}, "--nodes: 0 is too small; it must be at least 1"),
        ({"size": Size(2, 0)}, "--procs-per-node: 0 is too small; it must be at least 1"),
        ({"max_restarts": -1}, "--max-restarts: -1 is too small; it must be at least 0"),
        ({"name": "My Run"}, "--name: 'My Run' must be at most 52 lower-case letters"),
        ({"name": ""}, "--name: '' must be at most 52 lower-case letters"),
        ({"env": ["FOO"]}, "--env FOO: must be NAME=VALUE"),
        ({"env": ["=x"]}, "--env =x: must be NAME=VALUE"),
        ({"env": ["RANK=0"]}, "--env: RANK is set by DDPJob itself; remove it"),
        ({"env": ["A=1", "A=2"]}, "--env: A is used twice; names must differ"),
        ({"checkpoint": {"path": "/"}}, "--checkpoint: '/' does not have the right form"),
        ({"size": Size(0, 0)}, "--nodes: 0 is too small; it must be at least 1\n  --procs-per-node: 0 is too small"),
    ],
)
def test_a_wrong_option_is_named_as_it_was_typed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError) as error:
        of(script("train.py"), **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "My Run"},
        {"env": ["RANK=0"]},
        {"env": ["A=1", "A=2"]},
        {"env": [f"A{number}=1" for number in range(MAX_ENV + 1)]},
        *[{"checkpoint": {"path": path}} for path in ("/", "relative", "ftp://b/x", "s3://u:p@b/x", "s3://")],
        *[{"history": path} for path in ("relative", "ftp://b/x", "s3://u:p@b/x")],
    ],
    ids=str,
)
def test_what_an_option_gets_speaks_of_nothing_that_only_a_file_for_a_cluster_has(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError) as error:
        of(script("train.py"), **options)
    assert not CLUSTERS_WORDS.search(str(error.value)), error.value


def test_a_history_is_kept_at_a_place_or_switched_off() -> None:
    assert "history" not in of(script("train.py"))["spec"]
    assert of(script("train.py"), history="s3://b/kept")["spec"]["history"] == {"path": "s3://b/kept"}
    for entrypoint in (script("train.py"), command(["python", "train.py"])):
        assert of(entrypoint, history="off")["spec"]["history"] == {"mode": "Disabled"}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.path in TYPED], ids=lambda rule: rule.path)
def test_a_rule_that_an_option_can_break_does_not_either(rule: Rule) -> None:
    assert not CLUSTERS_WORDS.search(rule.message)


@pytest.mark.parametrize(
    ("words", "asked", "gpus", "size"),
    [
        ("torchrun train.py --nnodes 9", Size(), 0, Size()),
        ("torchrun --nnodes 2 --nproc-per-node=4 train.py", Size(), 0, Size(2, 4)),
        ("torchrun --nnodes=2 --nproc_per_node 4 train.py", Size(2, 4), 0, Size(2, 4)),
        ("/opt/bin/torchrun --nproc_per_node=gpu train.py", Size(2), 8, Size(2, 4)),
        ("torchrun --nproc_per_node auto train.py", Size(), 0, Size()),
        ("torchrun --standalone --nproc_per_node 2 train.py", Size(), 0, Size(None, 2)),
        ("python3 -m torch.distributed.run --nnodes 2 -m train", Size(), 0, Size(2)),
        ("accelerate launch --num_machines 2 --num_processes 8 train.py", Size(), 8, Size(2, 4)),
        ("accelerate launch train.py", Size(2, 2), 0, Size(2, 2)),
        ("python train.py --nnodes 2", Size(3), 0, Size(3)),
    ],
)
def test_the_size_is_what_the_launcher_s_own_command_line_says(
    words: str, asked: Size, gpus: int, size: Size
) -> None:
    spec = of(command(words.split()), size=asked, gpus=gpus)["spec"]
    assert Size(spec.get("nodes"), spec.get("procsPerNode")) == size


@pytest.mark.parametrize(
    ("words", "asked", "message"),
    [
        ("torchrun --nnodes 2 x.py", Size(4), "torchrun --nnodes 2 contradicts --nodes; give only one of them"),
        ("torchrun --nnodes 1:4 x.py", Size(), "torchrun --nnodes 1:4: must be a single number"),
        (
            "torchrun --nnodes=2 --node_rank=0 --rdzv_endpoint=10.0.0.1:29400 x.py",
            Size(),
            "torchrun --node_rank, --rdzv_endpoint: remove this, because DDPJob gives each node its place",
        ),
        (
            "torchrun --standalone x.py",
            Size(2),
            "torchrun --standalone: remove this, because DDPJob gives each node its place",
        ),
        (
            "accelerate launch --num_processes 3 x.py",
            Size(2),
            "accelerate launch --num_processes 3 cannot be divided among 2 nodes",
        ),
        (
            "accelerate launch --num_machines 2 --machine_rank 0 x.py",
            Size(),
            "accelerate launch --machine_rank: remove this, because DDPJob gives each node its place",
        ),
    ],
)
def test_a_launcher_that_says_what_cannot_be_is_refused(words: str, asked: Size, message: str) -> None:
    with pytest.raises(BadInputError) as error:
        of(command(words.split()), size=asked)
    assert str(error.value).startswith(message)


def test_a_launcher_stands_there_as_it_was_typed() -> None:
    words = ["accelerate", "launch", "--mixed_precision", "bf16", "train.py", "--lr", "1"]
    container = trainer(of(command(words), size=Size(2)))
    assert container["command"] == words
    assert {"args", "env"}.isdisjoint(container)


def test_flags_of_a_launcher_end_where_the_script_begins_and_are_long_ones() -> None:
    words = ["-v", "2", "--nproc-per-node=4", "--nnodes", "3", "train.py", "--epochs", "5"]
    assert [*launchers._flags(words)] == [("nproc_per_node", "4"), ("nnodes", "3")]
