"""The objects of a training run whose state a checkpoint holds, by name: models, optimizers, schedulers, others."""

import difflib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from ddpjob_rank.console import counted, listed, with_article
from ddpjob_rank.errors import ConfigError
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from ddpjob.checkpoint.divided import is_divided, state_of
from ddpjob.checkpoint.encoding import PLAIN, StateDict, first_lines
from ddpjob.checkpoint.finite import check_parameters, finite_parameters
from ddpjob.checkpoint.plain_values import NotPlainError, plain

from .accelerated import is_accelerator, parts_of
from .buckets import Orders, arrange, orders

NAMED_DIFFERENCES = 3
"""The largest number of differences that a message names."""

MISSPELLED = 0.8
"""How similar, from 0 to 1, a name in the program and one in the checkpoint must be to count as a misspelling."""

WRAPPERS = {DistributedDataParallel: "module", DataParallel: "module"}
"""The wrappers of a model, and the attribute under which each holds the model. torch.compile's is OPTIMIZED."""
OPTIMIZED = "_orig_mod"


@runtime_checkable
class Stateful(Protocol):
    """An object whose state can be saved, as PyTorch's objects can."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> Any:
        """Restores the state."""


class Named:
    """The named objects of a training run.

    The names of a model's parameters are the same whether the model is wrapped (DistributedDataParallel,
    torch.compile) or not, so that a checkpoint fits both.
    """

    def __init__(self, objects: Mapping[str, Any], arguments: Collection[str] = ()) -> None:
        """Takes the objects by name.

        None stands for no object, a dict for several objects, and an Accelerator for all that it has prepared.

        `arguments` are the other arguments of the program's call: a name that resembles one may be misspelled.

        Raises:
            ConfigError: An object has no state, or its state cannot be saved.
        """
        self.objects: dict[str, Stateful] = {}
        """The objects by name; the names of a model's parameters are those without wrappers."""
        self.divided: list[str] = []
        """The names of the objects whose state is divided among the ranks, such as that of fully_shard."""
        self._modules: dict[str, nn.Module] = {}
        self._sound: dict[str, frozenset[str]] = {}
        self._accelerators = [value for value in objects.values() if is_accelerator(value)]
        if len(self._accelerators) > 1:
            raise ConfigError(
                "several Accelerators have objects of the same names, such as model: pass the objects themselves,"
                " each by its own name"
            )
        for name, value in dict(_flat(objects)).items():
            if not isinstance(value, Stateful):
                raise ConfigError(_stateless(name, value, arguments))
            if is_divided(name, value):
                self.divided.append(name)
            self.objects[name] = value
            if isinstance(value, nn.Module):
                self._modules[name] = value
                self.objects[name] = UnwrappedModel(value)
                self._sound[name] = _sound(name, value)
        try:
            plain(self.state())
        except NotPlainError as error:
            raise ConfigError(f"the state of {error.keys.pop()} cannot be saved: {error}. {PLAIN}") from error

    @property
    def accumulating(self) -> bool:
        """Whether gradients are being accumulated, so that no step ends here. Only an Accelerator knows."""
        return bool(self._accelerators) and not all(each.sync_gradients for each in self._accelerators)

    def state(self) -> StateDict:
        """The state of each object. The tensors are not copies: training changes them."""
        return {name: state_of(value) for name, value in self.objects.items()}

    def check_finite(self, states: StateDict) -> None:
        """Checks the parameters that were finite at the beginning: they still have to be finite.

        An object without a state in the checkpoint is not checked: it may have been added since then.

        Raises:
            DivergedError: A parameter is not finite.
        """
        for name, sound in self._sound.items():
            check_parameters(states.get(name, {}), sound, name)

    def load(self, states: StateDict) -> list[str]:
        """Restores the objects from decoded states.

        Returns sentences about the objects that have no state, and about the states that have no object.

        An object without a state in the checkpoint stays as it is.

        Raises:
            ConfigError: A state does not fit its object, or the name of an object is misspelled.
        """
        unused = [name for name in states if name not in self.objects]
        missing = [name for name in self.objects if name not in states]
        for name in missing:
            if meant := _misspelled(name, unused):
                raise ConfigError(
                    f"the checkpoint has no state of {name}, but it has one of {meant}: did you mean {meant}? Pass"
                    f" the object as {meant}, even if the misspelled name is that of the checkpoint. If {name} is"
                    f" another object, give it a name that resembles {meant} less"
                )
        for name, value in self.objects.items():
            if name in states:
                _load(name, value, states[name])
        if missing and unused:
            begin, have = (listed(names, NAMED_DIFFERENCES) for names in (missing, unused))
            remark = f"the checkpoint has no state of {begin}, not restored, but of {have}, not used"
            return [f"{remark}: if an object has been renamed, stop, and pass it by its name in the checkpoint"]
        remarks = [f"the checkpoint has no state of {name}: {name} is not restored" for name in missing]
        return remarks + [f"the checkpoint also has a state of {name}, which is not used" for name in unused]

    def buckets(self) -> Orders:
        """The orders of the gradient buckets of the models."""
        return orders(self._modules.items())

    def arrange(self, buckets: Orders) -> None:
        """Lets the models have these gradient buckets. All ranks call it together, before `load`."""
        arrange(self._modules.items(), buckets)


class UnwrappedModel:
    """Gives a model's parameters the names that they would have without wrappers."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> StateDict:
        """The state, by the names without wrappers."""
        state = self._module.state_dict()
        return {plain_name: state[name] for name, plain_name in plain_names(self._module, state).items()}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Restores the state."""
        present = self._module.state_dict()  # Also contains the versions of the modules.
        names = plain_names(self._module, present)
        present.update({name: state[plain_name] for name, plain_name in names.items()})
        self._module.load_state_dict(present)


def _misspelled(name: str, unused: Sequence[str]) -> str | None:
    """The name in the checkpoint that `name` seems to mean. Only last parts are compared, such as g of model.g."""
    last = {saved.rpartition(".")[2]: saved for saved in unused}
    similar = difflib.get_close_matches(name.rpartition(".")[2], last, 1, MISSPELLED)
    return last[similar[0]] if similar else None


def check_by_name(owner: type, unnamed: Sequence[object], objects: Mapping[str, Any]) -> None:
    """Checks that a program has passed objects, and each of them by name.

    Raises:
        ConfigError: It has not.
    """
    name = owner.__name__
    if unnamed or not objects:
        problem = "takes no objects without names" if unnamed else "has nothing to save"
        raise ConfigError(f"{name}(…) {problem}: pass the objects by name, as in {name}(model=net, optimizer=opt)")


def arguments_of(owner: type) -> list[str]:
    """The names of a class's own arguments."""
    return inspect.getfullargspec(owner).kwonlyargs


def check_settings(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Checks that a state is not that of another class of optimizer, which `load_state_dict` does not notice.

    If only one of the two has settings that the other lacks, they may be versions of the same class.

    Raises:
        ValueError: Each has settings that the other lacks, such as `momentum` and `betas`.
    """
    ours = {key for group in optimizer.param_groups for key in group}
    theirs = {key for group in state.get("param_groups", ()) for key in group}
    if theirs and ours - theirs and theirs - ours:
        lacks, has = (listed(sorted(names), NAMED_DIFFERENCES) for names in (ours - theirs, theirs - ours))
        raise ValueError(f"it is that of another optimizer, which has {has}, but not {lacks}")


def _stateless(name: str, value: object, arguments: Collection[str]) -> str:
    meant = difflib.get_close_matches(name, arguments, 1)
    hint = f"did you mean {meant[0]}?" if meant else "so its state cannot be saved and restored"
    return (
        f"{name} is {with_article(type(value).__name__)}, which has no state_dict() and load_state_dict()"
        f"{'; ' if meant else ', '}{hint}"
    )


def _sound(name: str, model: nn.Module) -> frozenset[str]:
    """The names, without wrappers, of the trainable parameters that are finite now."""
    for key, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ConfigError(
                f"{name} has parameters without a shape, such as {key}: call it with a batch first, so that its lazy"
                " modules have all parameters"
            )
        if parameter.is_meta:
            raise ConfigError(
                f"{name} has parameters without values, such as {key}, because they are on the device meta: call"
                " to_empty() and initialise them first"
            )
    finite = dict.fromkeys(finite_parameters(model))
    return frozenset(plain_names(model, finite).values())


def _flat(objects: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in objects.items():
        if is_accelerator(value):
            yield from parts_of(value)
        elif isinstance(value, dict) and not isinstance(value, Stateful):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def _load(name: str, value: Stateful, state: StateDict) -> None:
    try:
        if isinstance(value, UnwrappedModel):
            if differs := difference(value.state_dict(), state):
                raise ConfigError(
                    f"{name} is not the model of the checkpoint: {differs}. Train the same model, or name another"
                    " directory"
                )
            value.load_state_dict(state)
        else:
            if isinstance(value, Optimizer):
                check_settings(value, state)
            # Most objects keep the tensors that they are given, which would keep the whole checkpoint in memory.
            value.load_state_dict(pytree.tree_map_only(Tensor, torch.clone, state))
            # Otherwise PyTorch may warn that the optimizer's schedule is ahead of it.
            if isinstance(value, Optimizer):
                value._opt_called = True  # noqa: SLF001
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        kind = "optimizer" if isinstance(value, Optimizer) else type(value).__name__
        raise ConfigError(
            f"the state of {name} in the checkpoint does not fit this {kind}: {first_lines(error)}"
        ) from error


def difference(present: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """How the names and shapes of a model differ from those of a checkpoint; empty if they do not.

    Only the first differences are named, and the others counted.
    """
    differences = [f"{key} is missing in the checkpoint" for key in present if key not in saved]
    differences += [f"{key} is only in the checkpoint" for key in saved if key not in present]
    differences += [
        f"{key} has the shape {_shape(saved[key])} in the checkpoint, and {_shape(item)} here"
        for key, item in present.items()
        if key in saved and _shape(item) != _shape(saved[key])
    ]
    more = len(differences) - NAMED_DIFFERENCES
    rest = [f"and {counted(more, 'further difference')}"] if more > 0 else []
    return "; ".join(differences[:NAMED_DIFFERENCES] + rest)


def _shape(value: object) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, Tensor) else None


def plain_names(model: nn.Module, names: Mapping[str, Any]) -> dict[str, str]:
    """For each name in a model's state, the name that it has in the model without wrappers."""
    return {name: ".".join(_unwrapped(model, name.split("."))) for name in names}


def _unwrapped(module: Any, path: list[str]) -> Iterator[str]:
    for part in path:
        wrapped = OPTIMIZED if hasattr(module, OPTIMIZED) else WRAPPERS.get(type(module))
        if part != wrapped:
            yield part
        module = getattr(module, part, None)
