"""Mistakes that PyTorch's own messages do not make plain; the messages are those of PyTorch 2.15."""

import argparse
import getpass
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.failure import traps
from ddpjob_rank.running import rank

UNUSED = """\
Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your \
module has parameters that were not used in producing loss. You can enable unused parameter detection by passing the \
keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by
making sure all `forward` function outputs participate in calculating loss.
Parameter indices which did not receive grad for rank 0: 2 3
 In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print out \
information about which particular parameters did not receive gradient on this rank as part of this error"""
TWICE = """\
Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a \
module parameter outside the `forward` function.
Parameter at index 1 has been marked as ready twice. This means that multiple autograd engine  hooks have fired for \
this particular parameter during this iteration."""
OTHER_MODEL = (
    "DDP expects same model across all ranks, but Rank 1 has 8 params, while rank 0 has inconsistent 10 params."
)
OTHER_SIZES = (
    "[1]: params[0] in this process with sizes [4, 32] appears not to match sizes of the same param in process 0."
)
NO_PARAMS = (
    "DDP expects same model across all ranks, but Rank 0 has 382 params, while rank 1 has inconsistent 0 params."
)
WEIGHTS_ONLY = """\
Weights only load failed. This file can still be loaded, to do so you have two options.
	(1) In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load`.
	WeightsUnpickler error: Unsupported global: GLOBAL numpy._core.multiarray._reconstruct was not an allowed \
global by default. Please use `torch.serialization.add_safe_globals([numpy._core.multiarray._reconstruct])`.

Check the documentation of torch.load to learn more about types accepted by default with weights_only https://py"""
NO_CHECKPOINT = """\
Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load`.
Please file an issue with the following so that we can make `weights_only=True` compatible with your use case: \
WeightsUnpickler error:\x20

Unsupported operand 118

Check the documentation of torch.load to learn more about types accepted by default with weights_only https://py"""
TRUNCATED = (
    "PytorchStreamReader failed reading zip archive: failed finding central directory. This is an internal miniz"
    " error. If you are seeing this error, there is a high likelihood that your checkpoint file is corrupted."
)
NO_GPU = "nccl2 requires at least one CUDA device"
NO_GPUS = "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"
NO_MNIST = "Dataset not found or corrupted. You can use download=True to download it"


@pytest.mark.parametrize(
    ("error", "kind", "what", "advice"),
    [
        (
            RuntimeError(UNUSED),
            ConfigError,
            "Parameter indices which did not receive grad for rank 0: 2 3: ",
            "pass find_unused_parameters=True",
        ),
        (RuntimeError(TWICE), ConfigError, "Expected to mark a variable ready only once: ", "use_reentrant=False"),
        (
            RuntimeError(OTHER_MODEL),
            ConfigError,
            OTHER_MODEL.rstrip(".") + ": ",
            "each rank must create the same model",
        ),
        (
            RuntimeError(OTHER_SIZES),
            ConfigError,
            OTHER_SIZES.rstrip(".") + ": ",
            "each rank must create the same model",
        ),
        (RuntimeError(NO_PARAMS), TrainerError, NO_PARAMS.rstrip(".") + ": ", "the other rank did not get as far"),
        (
            pickle.UnpicklingError(WEIGHTS_ONLY),
            ConfigError,
            "Unsupported global: GLOBAL numpy._core.multiarray._reconstruct was not an allowed global by default: ",
            "weights_only to False",
        ),
        (pickle.UnpicklingError(NO_CHECKPOINT), ConfigError, "Unsupported operand 118: ", "a Git LFS pointer"),
        (
            RuntimeError(TRUNCATED),
            TrainerError,
            "PytorchStreamReader failed reading zip archive: failed finding central directory: ",
            "the file is incomplete",
        ),
        (RuntimeError(NO_GPU), TrainerError, f"{NO_GPU}: ", "init_process_group(os.environ['DDPJOB_BACKEND'])"),
        (ValueError(NO_GPUS), TrainerError, NO_GPUS.rstrip("!"), "give the job GPUs"),
        (RuntimeError(NO_MNIST), TrainerError, "Dataset not found or corrupted: ", "Let one rank download it"),
        (RuntimeError("File not found or corrupted."), TrainerError, "File not found or corrupted: ", "(barrier)"),
    ],
    ids=[
        "unused",
        "twice",
        "other model",
        "other sizes",
        "no model",
        "weights only",
        "no checkpoint",
        "truncated",
        "no GPU",
        "no GPU, in 2.4",
        "no MNIST",
        "no file",
    ],
)
def test_a_message_of_many_lines_is_told_in_one_with_what_to_do(
    error: Exception, kind: type[TrainerError], what: str, advice: str
) -> None:
    known = traps.known_mistake(error)
    assert type(known) is kind
    assert str(known).startswith(what)
    assert advice in str(known)
    assert "\n" not in str(known)


def test_an_empty_checkpoint_is_told_as_a_file_that_is_not_whole() -> None:
    torch: dict[str, Any] = {}
    exec(
        compile("def load():\n raise EOFError", "/lib/python3.11/site-packages/torch/serialization.py", "exec"), torch
    )
    with pytest.raises(EOFError) as caught:
        torch["load"]()
    known = traps.known_mistake(caught.value)
    assert str(known).startswith("EOFError, in ")
    assert f": {traps.NOT_WHOLE}" in str(known)
    assert traps.known_mistake(EOFError()) is None


CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (CLUSTER, ", from a Secret (env of the trainer in the job's template)"),
        ({"DDPJOB_RUN_DIR": "/runs"}, ", or give the rank your terminal: ddpjob run --attach RANK"),
        ({}, ""),
    ],
    ids=["cluster", "local mode", "elsewhere"],
)
def test_a_password_that_nobody_can_type_fails_the_job_with_what_to_do(
    env: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "DDPJOB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    def no_terminal(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "open", no_terminal)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(EOFError) as caught, pytest.warns(getpass.GetPassWarning):
        getpass.getpass(stream=io.StringIO())
    known = traps.known_mistake(caught.value)
    assert isinstance(known, ConfigError)
    assert str(known).endswith(f"its rank has no terminal: pass it in the variable that the program reads{told}")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        pytest.param(CLUSTER | {"NNODES": "2"}, True, id="several nodes"),
        pytest.param(CLUSTER | {"NNODES": "1"}, False, id="one node"),
        pytest.param({"NNODES": "2"}, False, id="no cluster"),
        pytest.param(CLUSTER | {"NNODES": "2", "DDPJOB_RUN_DIR": "/runs"}, False, id="a run within a pod"),
    ],
)
def test_a_file_that_only_another_node_may_have_is_told_as_that(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "NNODES", "DDPJOB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FileNotFoundError) as caught:
        open("data/cifar10/batches.meta")  # noqa: PTH123, SIM115  As programs do.
    known = traps.known_mistake(caught.value)
    assert (known is not None) is told
    if told:
        assert str(known).startswith("[Errno 2] No such file or directory: 'data/cifar10/batches.meta', in ")
        assert str(known).endswith(traps.NOT_HERE)
    with pytest.raises(FileNotFoundError) as caught:
        subprocess.run(["/no/such/program"], check=False)
    assert traps.known_mistake(caught.value) is None


NO_ROOM = """\
Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
RuntimeError: unable to allocate shared memory(shm) for file </torch_10587_1383530652_0>: No space left on device (28)
"""


def test_the_report_has_the_type_of_the_programs_error_and_not_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report"
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(report))
    rank._report("", RuntimeError, RuntimeError(NO_ROOM), None)
    said = json.loads(report.read_text())
    assert said["exception"] == "RuntimeError"
    assert said["message"].startswith("unable to allocate shared memory: DataLoader workers pass")
    assert f"error: {said['message']}"[:100] in capsys.readouterr().err


class MuteError(RuntimeError):
    """An error of a program that cannot say what it is."""

    def __str__(self) -> str:
        raise KeyError("text")


def test_an_error_whose_own_text_fails_is_reported_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report"
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(report))
    rank._report("", MuteError, MuteError(), None)
    said = json.loads(report.read_text())
    assert (said["exception"], said["message"]) == ("MuteError", "<exception str() failed>")


def left_by(*words: str) -> SystemExit:
    """What argparse ends a program with."""
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--epochs", type=int)
    with pytest.raises(SystemExit) as leaving:
        parser.parse_args(words)
    return leaving.value


def test_what_argparse_said_of_wrong_arguments_is_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    found = traps.wrong_arguments(left_by("--epochs", "many"))
    assert isinstance(found, ConfigError)
    assert str(found) == "train.py: error: argument --epochs: invalid int value: 'many'"
    assert capsys.readouterr().err.endswith(f"{found}\n")


def test_a_program_that_exits_with_2_by_itself_has_not_complained_of_arguments() -> None:
    def exit(message: str) -> None:  # noqa: A001, ARG001  (as argparse has it)
        raise SystemExit(2)

    assert traps.wrong_arguments(left_by("--help")) is None
    for leave in (lambda: exit("not argparse's"), lambda: sys.exit(2)):
        with pytest.raises(SystemExit) as leaving:
            leave()
        assert traps.wrong_arguments(leaving.value) is None


def test_what_click_said_of_wrong_arguments_is_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.option("--epochs", type=int)
    def main(epochs: int) -> None:
        sys.exit(epochs)

    with pytest.raises(SystemExit) as leaving:
        main(["--epochs", "many"])
    found = traps.wrong_arguments(leaving.value)
    assert str(found) == "Invalid value for '--epochs': 'many' is not a valid integer."
    assert str(found) in capsys.readouterr().err
    with pytest.raises(SystemExit) as leaving:
        main(["--epochs", "2"])
    assert traps.wrong_arguments(leaving.value) is None
