"""Errors about parameters of `ddpjob.submit`, `run` and `connect`: their names are those of Python, not flags."""

import argparse
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ddpjob
import numpy as np
import pytest
from ddpjob_operator.api.option_names import FLAGS, LISTS, PARAMETERS, option
from ddpjob_operator.cli.arguments import parser
from ddpjob_operator.sdk.public_calls import OF_PROGRAMS
from kubernetes.client.api_client import ApiClient

from .test_sdk import Accepting

CALLS: dict[str, Callable[..., Any]] = {"submit": ddpjob.submit, "run": ddpjob.run, "connect": ddpjob.connect}
TYPED = [
    (call, name)
    for call, function in CALLS.items()
    for name in inspect.signature(function).parameters
    if name not in OF_PROGRAMS
]
SCRIPT = {"target": "train.py"}
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "args": ("submit", {"args": ["--lr"]}, r"args=\['--lr'\] must begin with a program"),
    "module": ("run", {"module": "a b"}, "module='a b': must be the name of a module"),
    "nodes": ("submit", SCRIPT | {"nodes": 0}, "nodes: 0 is too small"),
    "gpus_per_node": ("submit", SCRIPT | {"gpus_per_node": -1}, "gpus_per_node=-1: must not be less than 0"),
    "procs_per_node": ("run", SCRIPT | {"procs_per_node": 0}, "procs_per_node: 0 is too small"),
    "name": ("submit", SCRIPT | {"name": "A B"}, "name: 'A B' must be"),
    "env": ("run", SCRIPT | {"env": {"RANK": 1}}, "env: RANK is set by DDPJob itself"),
    "env_from": ("submit", SCRIPT | {"env_from": ["A B"]}, r"env_from=\['A B'\]: must be the name of a Secret"),
    "source": ("submit", SCRIPT | {"source": "nowhere"}, "source='nowhere': there is no such folder"),
    "include": ("submit", SCRIPT | {"source": ".", "include": ["no"]}, r"include=\['no'\]: there is no such file"),
    "source_registry": (
        "submit",
        SCRIPT | {"source": ".", "source_registry": "a b"},
        "source_registry='a b': ",
    ),
    "pip": ("submit", SCRIPT | {"pip": ["--lr"]}, r"pip=\['--lr'\]: put pip's options .* with requirements"),
    "requirements": ("submit", SCRIPT | {"source": ".", "requirements": "no"}, "requirements='no': there is no such"),
    "cpu": ("submit", SCRIPT | {"cpu": "lots"}, "cpu='lots': must be a Kubernetes quantity"),
    "memory": ("submit", SCRIPT | {"memory": "lots"}, "memory='lots': must be a Kubernetes quantity"),
    "volumes": ("submit", SCRIPT | {"volumes": ["data"]}, r"volumes=\['data'\]: must be CLAIM:/path"),
    "image_volumes": ("submit", SCRIPT | {"image_volumes": ["x"]}, r"image_volumes=\['x'\]: must be IMAGE:/path"),
    "checkpoint": ("submit", SCRIPT | {"checkpoint": "/here"}, "checkpoint='/here': must be CLAIM:/path"),
    "history": ("run", {"args": ["true"], "history": "/here"}, "history is for scripts, modules and"),
    "class_name": (
        "submit",
        SCRIPT | {"class_name": "a b"},
        "class_name='a b': must be the name of a class, such as canary",
    ),
    "queue": ("submit", SCRIPT | {"queue": "a b"}, "queue='a b': must be the name of a queue"),
    "max_restarts": ("run", SCRIPT | {"max_restarts": -1}, "max_restarts: -1 is too small"),
    "start_method": ("run", SCRIPT | {"start_method": "hot"}, "start_method='hot': must be 'warm' or 'cold'"),
    "run_dir": ("run", SCRIPT | {"run_dir": "train.py"}, "choose another with run_dir"),
    "replace": ("submit", SCRIPT | {"replace": "yes"}, "replace='yes': must be True or False"),
    "in_place": ("submit", SCRIPT | {"in_place": True}, "in_place belongs to replace: give both"),
    "kubeconfig": ("connect", {"kubeconfig": "nowhere"}, "no kubeconfig nowhere; name a file that exists"),
    "a command": ("run", {"args": ["train.py", 1]}, r"run it with: ddpjob\.run\('train\.py', args=\['1'\]\)"),
    "a program": ("run", {"target": "torchrun"}, r"into args, as in: ddpjob\.run\(args=\['torchrun'\]\)"),
    "nothing": ("run", {}, r"name a function or a script, a module with module=…, or a command with args=\["),
    "a name": ("submit", SCRIPT | {"image": 7}, "image=7: must be a string"),
    "two programs": ("run", SCRIPT | {"module": "m"}, "train.py and module='m' are two programs"),
    "a file": ("submit", {"target": "job.yaml", "nodes": 2}, "nodes is for programs; job.yaml says"),
    "code that is too large": ("submit", SCRIPT | {"source": "large"}, r"volumes=\['CLAIM:/data'\]"),
    "a list": ("submit", SCRIPT | {"pip": "einops"}, r"pip='einops': must be a list of strings, such as \['ein"),
    "a command line": (
        "run",
        SCRIPT | {"args": "--lr 0.1"},
        r"args='--lr 0.1': .* a list, such as \['--lr', '0.1'\]",
    ),
    "a mapping for a function": ("run", {"target": print, "args": {"lr": 1}}, "args={'lr': 1} is for a script; a fu"),
    "bytes": ("run", SCRIPT | {"args": b"--lr"}, "args=b'--lr': must be a list"),
    "a truth": ("run", SCRIPT | {"nodes": True}, "nodes=True: must be a whole number"),
    "an array": ("run", SCRIPT | {"start_method": np.array([1, 2])}, "must be 'warm' or 'cold'"),
    "no value": ("run", SCRIPT | {"args": ["--lr", None]}, r"args=\['--lr', None\]: an element is None"),
    "no variable": ("submit", SCRIPT | {"env": {"DEBUG": None}}, "env: DEBUG is None; leave it out"),
    "a variable's name": ("run", SCRIPT | {"env": {"A=B": 1}}, "env: 'A=B' cannot be the name of a variable"),
    "a null character": ("run", SCRIPT | {"env": {"A": "secret\0"}}, "env has a null character, which [^']*$"),
    "a path with one": ("run", SCRIPT | {"checkpoint": "a\0"}, "checkpoint has a null character"),
    "on a hold": ("run", SCRIPT | {"on": "dev", "nodes": 2}, "nodes cannot be given with on: it was chosen"),
    "files on a hold": (
        "run",
        {"module": "m", "on": "dev", "include": ["a"]},
        "include is for files of the source f",
    ),
    "a module on a hold": ("run", {"module": "m", "on": "dev"}, "module='m': .* name its folder: source='.'"),
    "nothing on a hold": ("run", {"args": ["true"], "on": "dev"}, "a script, or a module: module='NAME'"),
    "elements": ("submit", SCRIPT | {"volumes": [1]}, r"volumes=\[1\]: must be a list of strings"),
    "another parameter": ("submit", SCRIPT | {"node": 2}, "submit has no parameter node; did you mean nodes"),
    "GPUs for a job": ("submit", SCRIPT | {"gpus": 2}, "no parameter gpus; did you mean gpus_per_node"),
    "GPUs here": ("run", SCRIPT | {"gpus": 2}, "no parameter gpus; did you mean procs_per_node"),
    "torchrun's word": ("run", SCRIPT | {"nproc_per_node": 2}, "did you mean procs_per_node"),
    "another tool's word": ("submit", SCRIPT | {"num_workers": 2}, "did you mean nodes"),
    "options without names": ("run", {"target": "a", "arguments": {}, "*": 2}, "run has no parameter \\*"),
}
ANY_VALUE = {"image", "quiet", "on", "namespace", "context"}
"""Parameters that only the cluster can find wrong, or none can."""
FLAG = re.compile(r"(?<![\w-])--?[a-z]")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with a script, before a cluster that accepts everything."""
    from ddpjob_operator.sdk import submitting  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)\n", encoding="utf-8")
    Path("job.yaml").write_text("kind: DDPJob\n", encoding="utf-8")
    large = tmp_path.with_name(f"{tmp_path.name}-large")
    large.mkdir()
    Path("large").symlink_to(large)
    with (large / "data.bin").open("wb") as file:
        file.truncate(1 << 30)
    monkeypatch.setattr(submitting, "connect", lambda *_: Accepting(ApiClient(), "here", "team"))


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_names_parameters_and_no_flags(wrong: str) -> None:
    call, given, sentence = WRONG[wrong]
    with pytest.raises(ddpjob.BadInputError, match=sentence) as raised:
        CALLS[call](**given)
    assert not FLAG.search(str(raised.value).replace("--lr", "")), str(raised.value)


@pytest.mark.parametrize(("call", "name"), TYPED)
def test_a_value_of_another_type_is_an_error_that_says_which_is_right(call: str, name: str) -> None:
    with pytest.raises(ddpjob.BadInputError, match=rf"{name}=<object object .*>: must be "):
        CALLS[call](**{name: object()})


def test_each_parameter_is_an_option_of_the_command() -> None:
    """Each can also be given a wrong value in a test."""
    commands = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    for call in ("submit", "run"):
        flags = {flag for action in commands[call]._actions for flag in action.option_strings} | {FLAGS["program"]}
        parameters = {name for of, name in TYPED if of == call} - {"quiet"}
        given = {own: name for name, own in PARAMETERS.items()}
        assert {option(given.get(name, name.replace("_", "-"))) for name in parameters} <= flags
        assert parameters <= WRONG.keys() | ANY_VALUE
    hints = inspect.signature(ddpjob.submit).parameters
    lists = {name for name, parameter in hints.items() if str(parameter.annotation).startswith("collections.abc.Seq")}
    assert lists == {PARAMETERS.get(name, name.replace("-", "_")) for name in LISTS}


def train(lr: float, *, epochs: int = 1) -> float:
    return lr * epochs


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lr": 0.1, "epochs": 2}, "has no parameter lr; the arguments of train are one mapping: {name}(train, {"),
        ({"lrr": 0.1}, "has no parameter lrr; did you mean the argument lr of train? {name}(train, {'lr': 0.1})"),
        ({"arguments": {"lrr": 0.1}}, "has no parameter lrr; did you mean lr?"),
        ({"arguments": [0.1]}, "must be one mapping, of the names of train's parameters to their values"),
        ({"target": "train.py", "lr": 0.1}, "the arguments of a script are a list: {name}('train.py', args=['--lr'"),
    ],
)
@pytest.mark.parametrize("call", ["submit", "run"])
def test_arguments_that_are_no_mapping_are_told_how_to_be_one(
    call: str, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ddpjob.BadInputError) as raised:
        CALLS[call](**{"target": train} | given)
    assert sentence.replace("{name}", f"ddpjob.{call}") in str(raised.value)


@pytest.mark.parametrize("call", ["submit", "run"])
def test_a_function_that_is_given_without_a_name_is_known_too(call: str) -> None:
    with pytest.raises(ddpjob.BadInputError, match="the arguments of train are one mapping"):
        CALLS[call](train, lr=0.1)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("train.py", {"nodes": Unshowable()}),
        ("train.py", {"args": [Unshowable()], "nodes": "2"}),
        ("train.py", {"arguments": [Unshowable()]}),
        (train, {"args": [Unshowable()]}),
        (train, {"arguments": [Unshowable()]}),
        (train, {"arguments": {Unshowable(): 1}}),
        (train, {"arguments": {0: 1}}),
        (train, {"arguments": {"lr": {Unshowable(): 1}}}),
        (train, {"lr": Unshowable()}),
        (train, {"lrr": Unshowable()}),
        (Unshowable(), {}),
    ],
)
def test_a_value_that_cannot_be_shown_gets_its_error_too(target: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ddpjob.BadInputError):
        ddpjob.run(target, **given)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda job: job.logs(rank="3"), "rank='3': must be a whole number"),
        (lambda job: job.logs(tail="all"), "tail='all': must be a whole number"),
        (lambda job: job.logs(folow=True), "ddpjob.Job.logs has no parameter folow; did you mean follow?"),
        (lambda job: job.wait(timeout=[1]), "timeout=[1]: must be a number or a string"),
        (lambda job: job.wait(timeout=float("nan")), "timeout=nan: must be a number of seconds"),
        (lambda job: job.result(True), "timeout=True: must be a number or a string"),
        (lambda job: job.report(7), "path=7: must be a string or a path"),
        (lambda job: job.scale("4"), "nodes='4': must be a whole number"),
    ],
)
def test_the_methods_of_a_job_check_what_they_are_given(call: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(ddpjob.BadInputError) as raised:
        call(ddpjob.submit("train.py", quiet=True))
    assert sentence in str(raised.value)


def test_a_scalar_of_numpy_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    ddpjob.submit("train.py", nodes=np.int64(2))  # type: ignore[arg-type]
    assert "2 nodes" in capsys.readouterr().out


def test_too_many_arguments_without_names_are_an_error() -> None:
    with pytest.raises(ddpjob.BadInputError, match="too many positional arguments; give options by name, such as"):
        ddpjob.run(train, {"lr": 1}, 2)  # type: ignore[call-arg]


def test_what_is_printed_names_parameters_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("beside.py").touch()
    Path("train.py").write_text("import beside\n", encoding="utf-8")
    ddpjob.submit("train.py", env={"API_TOKEN": "x"})
    printed = capsys.readouterr().out
    assert "to send it: source='.'" in printed
    assert "put secret values into a Secret, and name it with env_from" in printed
    for number in range(7):
        Path(f"{number}.pem").touch()
    ddpjob.submit("train.py", source=".")
    printed = capsys.readouterr().out
    assert "To send one anyway: include=['FILE']" in printed
    assert " and 2 more" in printed
    assert not FLAG.search(printed), printed
    assert option("source", ".") == "--source .", "outside of a call it is the command's"
