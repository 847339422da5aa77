"""Recognizes common mistakes in PyTorch training programs by their errors, and explains what to do.

PyTorch's messages explain what went wrong inside PyTorch, but not what to change in the program.
"""

import ast
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pickle import UnpicklingError
from types import FrameType, MethodType
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, TrainerError

from .failure_report import last_line
from .hidden_modules import hidden_module
from .own_code import place_of, statements_of

DATA_SET = "torch/utils/data/_utils/fetch.py"
"""The file in PyTorch in which a DataLoader reads samples from a data set."""

CHECKPOINT = "torch/serialization.py"
"""The file in PyTorch that reads what torch.save has written."""

GETPASS = "getpass.py"
"""Python's module that asks for passwords."""

NOT_WHOLE = (
    "the file is incomplete: its writer was killed or had no room, or another rank is still writing it. Write it"
    " under another name, on rank 0 only, then rename it (os.replace); remove this file, or load an older one"
)


NOT_HERE = (
    "this node does not have it. If another node made or downloaded it, do so on each node (where LOCAL_RANK is"
    " 0), or in a volume that all nodes mount (ddpjob submit --volume CLAIM:/PATH): nodes share no other disk"
)


@dataclass(frozen=True, slots=True)
class Trap:
    """A common mistake."""

    kind: type[Exception]
    says: re.Pattern[str]
    """Searched for in the error's message and in its traceback. If the pattern has a group `what`, the group is the
    part of the message that describes what happened; otherwise the message's last line is."""
    advice: str
    for_certain: bool = True
    """Whether every further try would fail in the same way."""
    on_a_cluster: str = ""
    """What the advice adds on a cluster."""
    here: str = ""
    """What the advice adds in local mode."""


TRAPS = (
    Trap(
        NotImplementedError,
        re.compile(r"Module \[Module(List|Dict)\] is missing the required \"forward\" function"),
        "this container only holds layers and cannot be called: let forward go through them (for layer in"
        " self.layers: x = layer(x)), or use nn.Sequential",
    ),
    Trap(
        RuntimeError,
        re.compile(r"Expected all tensors to be on the same device|is not on the expected device"),
        "tensor.to(device) returns a new tensor, so assign it (x = x.to(device)); create tensors in forward"
        " with device=x.device, and use register_buffer for tensors that the model keeps",
    ),
    Trap(
        RuntimeError,
        re.compile(r"\A(?>.*?Error\(s\) in loading state_dict).*\"module\.", re.DOTALL),
        "the weights were saved from a model that DistributedDataParallel or DataParallel had wrapped: save"
        " model.module.state_dict(), or remove the prefix from the names with"
        " torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(weights, 'module.')",
    ),
    Trap(
        IndexError,
        re.compile(r"Target -?\d+ is out of bounds"),
        "targets are classes counted from 0, so each must be below the number of outputs of the last layer",
    ),
    Trap(
        RuntimeError,
        re.compile(r"device-side assert triggered"),
        "the usual cause is a target that is not one of the model's classes, or an index beyond the end of an"
        " embedding; to see which, run the same step on a CPU (--backend gloo, no GPU visible)",
        for_certain=False,
    ),
    Trap(
        IndexError,
        re.compile(re.escape(DATA_SET)),
        "most likely the loader asked for a sample that the data set does not have: create the sampler and the loader"
        " from the same data set (DistributedSampler(data), DataLoader(data, sampler=sampler)), whose __len__ must"
        " return its number of samples",
        for_certain=False,
    ),
    Trap(
        RuntimeError,
        re.compile(r"Duplicate GPU detected : rank \d+ and rank \d+ both on CUDA device"),
        "two ranks on one machine use the same GPU. Before the first collective, each rank must select its own GPU"
        " with torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), and move the model and the batches to it. A"
        " machine can have at most as many ranks as GPUs",
    ),
    Trap(
        RuntimeError,
        re.compile(r"shared memory segment /dev/shm/nccl-|failed to extend /dev/shm/nccl-"),
        "ranks of one machine pass data through /dev/shm, which is too small here: make it larger"
        " (docker run --shm-size=1g; in a pod, an emptyDir with medium: Memory mounted on /dev/shm)",
        for_certain=False,
    ),
    Trap(
        RuntimeError,
        re.compile(
            r"(?P<what>unable to allocate shared memory)"
            r"|It is possible that dataloader's workers are out of shared memory"
        ),
        "DataLoader workers pass their batches through /dev/shm, which is too small here: make it larger"
        " (docker run --shm-size=1g; in a pod, an emptyDir with medium: Memory mounted on /dev/shm), or use fewer"
        " workers (num_workers or --workers; 0 does not need it)",
        for_certain=False,
    ),
    Trap(
        RuntimeError,
        re.compile(r"(?P<what>Parameter indices which did not receive grad for rank \d+: [\d ]*)"),
        "the loss does not depend on the parameters with these indices. Use them in forward, freeze them"
        " (requires_grad_(False)), or pass find_unused_parameters=True to DistributedDataParallel. To see their"
        " names, set TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    Trap(
        RuntimeError,
        re.compile(r"(?P<what>Expected to mark a variable ready only once)"),
        "a parameter gets its gradient twice in a step: call checkpoint with use_reentrant=False, or pass"
        " static_graph=True to DistributedDataParallel, and use no parameter outside forward",
    ),
    Trap(
        RuntimeError,
        re.compile(
            r"DDP expects same model across all ranks.{1,99} has inconsistent [1-9]\d* params"
            r"|appears not to match (?:sizes|strides) of the same param in process 0"
        ),
        "each rank must create the same model before DistributedDataParallel wraps it: the same layers, adapters and"
        " frozen parameters, whatever the rank, and random choices with the same seed",
    ),
    Trap(
        RuntimeError,
        re.compile(r"DDP expects same model across all ranks.{1,99} has inconsistent 0 params"),
        "the other rank did not get as far as DistributedDataParallel: it has failed, or is in another collective;"
        " its log says which",
        for_certain=False,
    ),
    Trap(
        UnpicklingError,
        re.compile(r"WeightsUnpickler error: (?P<what>Unsupported (?:global|class)(?:[^.\n]|\.\S){1,200})"),
        "the file holds more than tensors and plain values: if you trust it, set"
        " weights_only to False in torch.load; or save only state_dicts, numbers and texts",
    ),
    Trap(
        UnpicklingError,
        re.compile(r"WeightsUnpickler error:\s{1,9}(?P<what>Unsupported operand \d{1,3})"),
        "torch.save does not write such a file by default: it may be damaged, or text, such as a Git LFS pointer."
        " If it was saved with another pickle_protocol than 2, and you trust it, set weights_only to False in"
        " torch.load",
    ),
    Trap(
        RuntimeError,
        re.compile(r"(?P<what>PytorchStreamReader failed reading zip archive: [^.\n]{1,99})"),
        NOT_WHOLE,
        for_certain=False,
    ),
    Trap(EOFError, re.compile(re.escape(CHECKPOINT)), NOT_WHOLE, for_certain=False),
    Trap(
        Exception,  # RuntimeError, in some releases ValueError.
        re.compile(
            r"nccl2 requires at least one CUDA device|ProcessGroupNCCL is only supported with GPUs, no GPUs found"
        ),
        "NCCL needs a GPU for each rank, and this process sees none: give the job GPUs (ddpjob submit"
        f" --gpus-per-node), or use the backend that fits it: init_process_group(os.environ['{Env.BACKEND}'])",
        for_certain=False,
    ),
    Trap(
        RuntimeError,
        re.compile(r"(?P<what>(?:File|Dataset) not found or corrupted)"),
        "the download broke off, or several ranks write the data set at the same moment. Let one rank"
        " download it while the others wait (barrier): rank 0 for a folder that all nodes share, otherwise"
        " LOCAL_RANK 0 on each node",
        for_certain=False,
    ),
    Trap(
        EOFError,
        re.compile(re.escape(GETPASS)),
        "the program asks for a password or a key, but its rank has no terminal: pass it in the variable that the"
        " program reads",
        on_a_cluster=", from a Secret (env of the trainer in the job's template)",
        here=", or give the rank your terminal: ddpjob run --attach RANK",
    ),
    Trap(
        NameError,
        re.compile(r"name 'basestring' is not defined"),
        "this package is for Python 2; args in DDP examples is the result of argparse's parse_args(), not a package",
    ),
)


USAGE_ERROR = 2
"""The exit code of argparse and click for wrong arguments. If the code differs, the parser may have exited for any
reason."""

OF_CLICK = frozenset({"click", "rich_click", "typer"})
"""click, and packages that are built on it, whose code may exit the program instead of click's."""

PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dotenv": "python-dotenv",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""For modules that come from a package of another name: the package's name. A package with the module's own name may
be from anybody."""


def known_mistake(error: BaseException) -> TrainerError | None:
    """The error as one line with its place and advice, if it matches TRAPS or names a missing module; else None."""
    if hidden := hidden_module(error, sys.path[0]):
        return hidden
    if isinstance(error, ModuleNotFoundError) and error.name and "." not in error.name:
        # A name with a dot is a missing part of an installed package.
        return _not_there(error, error.name)
    if isinstance(error, FileNotFoundError) and _is_of_another_node(error):
        return TrainerError(f"{error}{_in(error)}: {NOT_HERE}")
    text = f"{error}\n{''.join(traceback.format_tb(error.__traceback__))}"
    for trap in TRAPS:
        if isinstance(error, trap.kind) and (found := trap.says.search(text)):
            kind = ConfigError if trap.for_certain else TrainerError
            added = trap.on_a_cluster if _on_a_cluster() else trap.here if Env.RUN_DIR in os.environ else ""
            return kind(f"{_what(error, found)}{_in(error)}: {trap.advice}{added}")
    return None


def wrong_arguments(leaving: SystemExit) -> ConfigError | None:
    """The message with which argparse or click rejected a program's arguments; None if neither ended the program."""
    if leaving.code != USAGE_ERROR:
        return None
    *_, (frame, _) = traceback.walk_tb(leaving.__traceback__)
    module, message = str(frame.f_globals.get("__name__")), ""
    if (module, frame.f_code.co_name) == ("argparse", "exit"):
        message = str(frame.f_locals.get("message") or "").strip()
    elif module.partition(".")[0] in OF_CLICK:
        message = _said_by_click(leaving, frame)
    return ConfigError(message.splitlines()[-1]) if message else None


def _said_by_click(leaving: SystemExit, frame: FrameType) -> str:
    """The message of click's usage error; empty if there is none.

    Before 8.5, click exits while it handles the error. From 8.5 on, it exits after that. Then a local variable of the
    frame still holds the error's bound method that has printed the message, and the error is found through this
    method.
    """
    shown = (value.__self__ for value in frame.f_locals.values() if isinstance(value, MethodType))
    errors: Iterator[Any] = (item for item in (leaving.__context__, *shown) if _is_usage_error(item))
    return next((str(error.format_message()).strip() for error in errors), "")


def _is_usage_error(error: object) -> bool:
    """Whether an error is a UsageError of click, or of a copy of click in another package. Compares names."""
    kinds = ((kind.__module__, kind.__name__) for kind in type(error).__mro__)
    return any(name == "UsageError" and module.endswith("click.exceptions") for module, name in kinds)


def _not_there(error: ModuleNotFoundError, name: str) -> ConfigError:
    """The error for a missing module, and for other modules that the same file would fail to import next."""
    file, _, line = place_of(error).rpartition(":")
    modules = {name: place_of(error)}
    for other, number in _imports_from(file, int(line)) if file else ():
        if other in sys.modules or other in sys.stdlib_module_names:
            continue
        if _is_there(other):
            break  # This module may change the search path for the next imports.
        modules.setdefault(other, f"{file}:{number}")
    names = " or ".join(f"{name!r}{f', in {place}' if place else ''}" for name, place in modules.items())
    return ConfigError(f"No module named {names}: {_how_to_have([*modules])}")


def _in(error: BaseException) -> str:
    return f", in {where}" if (where := place_of(error)) else ""


def _on_a_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and Env.RUN_DIR not in os.environ


def _is_of_another_node(error: FileNotFoundError) -> bool:
    """Whether another node may have the file. All nodes get the same answer, because the operator compares errors."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    starts_a_program = frame.f_globals.get("__name__") == "subprocess"
    several = os.environ.get(Env.NNODES, "1") != "1"
    return error.filename is not None and several and _on_a_cluster() and not starts_a_program


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # noqa: BLE001  A third-party finder may raise any error: then say nothing about the module.
        return True


def _imports_from(file: str, line: int) -> Iterator[tuple[str, int]]:
    """The modules that a file imports from `line` up to the next other statement, each with its line number."""
    for statement in statements_of(file):
        match statement:
            case ast.stmt(lineno=number) if number < line:
                continue
            case ast.Import(names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(str(module), level=0):
                modules = [module]
            case _:
                return
        yield from ((module.partition(".")[0], statement.lineno) for module in modules)


def _how_to_have(modules: Sequence[str]) -> str:
    packages = [PACKAGES.get(module, module) for module in modules]
    they, are, them, their = ("it", "is", "it", "its") if len(packages) == 1 else ("they", "are", "them", "their")
    if _on_a_cluster():
        asked = " ".join(f"--pip {package}" for package in packages)
        return (
            f"the image lacks {them}: install {them} with ddpjob submit {asked} (on held nodes: ddpjob hold NAME"
            f" {asked}) or, if {they} {are} your own, send {their} folder with --source"
        )
    install = f"{sys.executable} -m pip install {' '.join(packages)}"
    return f"if {they} {are} not your own, install {them}: {install}"


def _what(error: BaseException, found: re.Match[str]) -> str:
    what = found.groupdict().get("what") or last_line(error) or type(error).__name__
    return what.strip().rstrip(".:")
