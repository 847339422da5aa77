"""Saves and restores state that is divided among ranks.

Such state are the DTensors of fully_shard and tensor parallelism, and the states of ZeroRedundancyOptimizer.

    step-00000120/state.pt         what is not divided, and the list of all tensors in the files below
    step-00000120/__1_0.distcp     the tensors, or parts of tensors, that rank 1 has written
    step-00000120/manifest.json    with the size and the checksum of each file; rank 0 writes it when all are durable

All ranks write into one directory, which their nodes must share. They coordinate a save in a process group of
their own, in a thread of their own: the thread that trains only copies its part of the state.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import astuple, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any, cast

import torch
import torch.distributed as dist
from ddpjob_rank import errors
from ddpjob_rank.console import listed
from ddpjob_rank.errors import ConfigError, PeerLostError, StorageError, TrainerError
from ddpjob_rank.machine.storage import ADVICE, kind_of
from ddpjob_rank.manifests.manifest import Manifest, Shard, read_manifest
from ddpjob_rank.manifests.unusable import UnusableError
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import empty as empty_dtensor
from torch.optim import Optimizer

from ddpjob.group.collectives import all_gather, gather

from . import shard_files as shards
from .checkpoint_directory import CheckpointDirectory
from .encoding import PLAIN, StateDict, check_loadable, encode, first_lines
from .finite import check_parameters
from .plain_values import MAPPINGS, SEQUENCES, NotPlainError, Sharded, plain, with_items, with_values
from .shard_files import Index, Placed
from .writer import Snapshots, Written

SHARED, RANKS, TENSORS = "shared", "ranks", "tensors"
"""The keys of a state: the part that all ranks share, each rank's own part, and the places of the tensors."""

NAMED_RANKS = 3
"""The most ranks that a message names."""

ONE_DIRECTORY = (
    "State that is divided among ranks is written by all of them, so all nodes need the same directory: in a pod, a "
    "volume with the access mode ReadWriteMany"
)

Things = Mapping[str, Any]
"""The objects that are saved, by name. They have `state_dict` and `load_state_dict`, or are dicts of such objects."""


class HeldState(dict[Any, Any]):
    """The part of a dict that this rank has. The whole dict is the parts of all ranks together."""


def sharded_names(things: Things) -> list[str]:
    """The names of those things whose state is divided among the ranks.

    Raises:
        ConfigError: The state of a thing is divided in a way that cannot be saved.
    """
    return [name for name, thing in things.items() if _is_divided(name, thing)]


def _is_divided(name: str, thing: Any) -> bool:
    if isinstance(thing, Mapping):
        return bool(sharded_names({f"{name}.{key}": part for key, part in thing.items()}))
    if isinstance(thing, nn.Module) and any(isinstance(part, FullyShardedDataParallel) for part in thing.modules()):
        raise ConfigError(
            f"{name} is wrapped by FullyShardedDataParallel, whose state can only be read by all ranks together, "
            "while none of them trains: use torch.distributed.fsdp.fully_shard"
        )
    if isinstance(thing, ZeroRedundancyOptimizer):
        return True
    parameters = _parameters(thing) if isinstance(thing, Optimizer) else []
    return any(isinstance(tensor, DTensor) for tensor in (*parameters, *_tensors(thing.state_dict())))


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of an optimizer. Its state_dict uses their indices in this list as keys."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def state_of(thing: Any) -> Any:
    """The state of a thing, in the form of its `state_dict()`. No rank waits for another rank."""
    if isinstance(thing, Mapping):
        return {key: state_of(part) for key, part in thing.items()}
    if not isinstance(thing, ZeroRedundancyOptimizer):
        return thing.state_dict()
    # Its own state_dict() needs consolidate_state_dict(), which sends everything to one rank.
    numbers = {parameter: number for number, parameter in enumerate(_parameters(thing))}
    return {
        "state": HeldState({numbers[parameter]: dict(state) for parameter, state in thing.optim.state.items()}),
        "param_groups": [
            {**group, "params": [numbers[parameter] for parameter in group["params"]]} for group in thing.param_groups
        ],
    }


class ShardedSaver:
    """Saves and restores one run whose state is divided. Each rank makes the same calls in the same order.

    Constructing it is the only call in which ranks wait for each other in the thread that trains.
    """

    def __init__(
        self,
        directory: Path,
        files: CheckpointDirectory | None,
        world: World,
        divided: Collection[str],
        sound: Collection[str] = (),
    ) -> None:
        """Prepares saves into a directory.

        Args:
            directory: Where the checkpoints are, on this node.
            files: The same directory on rank 0; None on others.
            world: This rank.
            divided: The names of things whose state is divided, as `sharded_names` has found them.
            sound: The tensors that must be finite in a checkpoint, such as `model.weight`.

        Raises:
            ConfigError: The nodes do not share this directory.
        """
        self._directory = directory.absolute()
        self._files = files
        self._world = world
        self._divided = frozenset(divided)
        self._sound = sound
        self._group = None if world.alone else cast("dist.ProcessGroup", dist.new_group(backend="gloo"))
        self._snapshots: Snapshots | None = None
        self._writing: Future[Written] | None = None
        self._proved = False
        self._refuse_unshared()

    @property
    def busy(self) -> bool:
        """Whether a save is being written."""
        return self._writing is not None and not self._writing.done()

    def begin(self, manifest: Manifest, state: StateDict, own: Any) -> None:
        """Copies this rank's part of a state, and begins to write the copy.

        The previous save must have finished.

        Args:
            manifest: The description of the checkpoint. Rank 0's is written.
            state: For each thing, by name, what `state_of` returns.
            own: This rank's own state, as plain values. Nothing may change it after this call.
        """
        assert self._writing is None, "one at a time: they share the copy's memory"
        try:
            taken: _Taken | TrainerError = self._take(state, own)
        except TrainerError as error:
            taken = error  # The other ranks must learn of the error, so that this save fails on all of them.
        self._writing = Future()
        # A daemon: a process that ends after an error must not wait for ranks that never come to this save.
        Thread(target=self._fulfil, args=(self._writing, manifest, taken), name="checkpoint", daemon=True).start()

    def finished(self, *, wait: bool) -> Written | None:
        """Returns the save that was begun if all of it is durable and it was not returned before.

        Returns None if there is no such save, or if `wait` is false and the save is not durable yet.

        Raises:
            StorageFullError, StorageError: A rank could not write its part.
            SupersededError: A later run has taken over.
            ConfigError: A rank may not write to the directory, or the state cannot be saved.
            DivergedError: A parameter is not finite.
            PeerLostError: A rank was lost before the save was durable.
        """
        if self._writing is None or not (wait or self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        return writing.result()

    def restore(self, path: Path | None, saved: StateDict, things: Things) -> StateDict:
        """The state in a checkpoint, divided as the things are now, ready for `load_state_dict`.

        Args:
            path: The checkpoint, on rank 0.
            saved: Its decoded state, on each rank.
            things: What is restored, by name.

        Raises:
            ConfigError, CheckpointUnusableError: As for `fitted`.
        """
        name = all_gather(path.name if path else "", self._world, self._group)[0]
        return fitted(saved, self._directory / name, things)

    def _refuse_unshared(self) -> None:
        """Has each rank write a file into a directory that rank 0 has made."""
        with self._files.workspace() if self._files else nullcontext(self._directory) as workspace:
            place = self._directory / all_gather(workspace.name, self._world, self._group)[0]
            problem = ""
            try:
                (place / str(self._world.rank)).touch(exist_ok=False)
            except OSError as error:
                problem = str(error.strerror)
            problems = all_gather(problem, self._world, self._group)
        if apart := [f"rank {rank} ({why})" for rank, why in enumerate(problems) if why]:
            raise ConfigError(
                f"these ranks cannot write to the directory that rank 0 has made in {self._directory}: "
                f"{listed(apart, NAMED_RANKS)}. {ONE_DIRECTORY}"
            )

    def _take(self, state: StateDict, own: Any) -> "_Taken":
        parts = _Parts(leads=self._world.leads)
        trees = {
            name: parts.split(value, (name,)) if name in self._divided else value
            for name, value in state.items()
            if self._world.leads or name in self._divided
        }
        if self._snapshots is None:
            self._snapshots = Snapshots()
        shared = trees if self._world.leads else {}
        try:
            rest = plain({"shared": shared, "held": parts.held, "own": own})
        except NotPlainError as error:
            raise ConfigError(f"the state cannot be saved: {error}. {PLAIN}") from error
        return _Taken(
            parts.tensors, digest=parts.digest.hexdigest(), **self._snapshots.take({**rest, "ours": parts.ours})
        )

    def _fulfil(self, writing: Future[Written], manifest: Manifest, taken: "_Taken | TrainerError") -> None:
        began = time.monotonic()
        try:
            path = self._lead(manifest, taken) if self._files else self._follow(taken)
            writing.set_result(Written(str(path), manifest, time.monotonic() - began))
        except BaseException as error:  # noqa: BLE001  (`finished` raises it)
            writing.set_exception(error)

    def _lead(self, manifest: Manifest, taken: "_Taken | TrainerError") -> Path:
        """Rank 0's part of a save: it creates the checkpoint, and commits it when all ranks have written."""
        files, save = self._files, _Exchange(self._world, self._group)
        assert files is not None
        state: StateDict = {}

        def write_shards(fresh: Path) -> tuple[Shard, ...]:
            mine, _ = save.opened(taken, str(fresh.relative_to(self._directory)))
            reports = save.reported(self._report(fresh, mine))
            index = shards.merged(report["tensors"] for report in reports)
            shards.write_metadata(fresh, index)
            state.update(_whole(mine.shared, reports, index), position=manifest.position)
            return tuple(Shard(*shard) for report in reports for shard in report["shards"])

        try:
            path = files.write(manifest, lambda file: encode(state, file), self._check, write_shards)
        except Exception as error:
            save.failed(error)
            raise
        save.closed(path.name)
        return path

    def _follow(self, taken: "_Taken | TrainerError") -> Path:
        """The other ranks' part of a save."""
        save = _Exchange(self._world, self._group)
        mine, place = save.opened(taken)
        save.reported(self._report(self._directory / place, mine))
        return self._directory / save.closed()

    def _report(self, path: Path, taken: "_Taken") -> StateDict:
        """Writes this rank's part. Returns a report of it for rank 0, or the error."""
        try:
            check_parameters(taken.ours, self._sound)
            files, index = shards.write(path, self._world.rank, taken.tensors, taken.ours)
        except Exception as error:  # noqa: BLE001  (rank 0 raises it)
            return {"problem": _told(error)}
        return {
            "problem": None,
            "shards": [astuple(file) for file in files],
            "tensors": shards.forms(index),
            "held": taken.held,
            "own": taken.own,
        }

    def _check(self, file: Path) -> None:
        """Checks only the first save of a run, because later saves differ only in their numbers."""
        if not self._proved:
            check_loadable(file)
            self._proved = True


@dataclass(frozen=True, slots=True)
class _Taken:
    """This rank's part of a state, copied."""

    tensors: Mapping[str, Tensor]
    """All tensors of divided things. Only their names, types and places are used: training changes their values."""
    digest: str
    """A checksum of their names, types and sizes."""
    ours: StateDict
    """The copies of those tensors, or parts of DTensors, that this rank writes."""
    shared: StateDict
    """On rank 0, the states without the tensors of divided things, in their plain form."""
    held: list[Any]
    """Paths and contents of the parts of dicts that only this rank has."""
    own: Any


class _Parts:
    """Takes the tensors out of the states of divided things."""

    def __init__(self, *, leads: bool) -> None:
        self._leads = leads
        self.tensors: dict[str, Tensor] = {}
        self.ours: dict[str, Tensor] = {}
        self.held: list[Any] = []
        self.digest = hashlib.sha256()

    def split(self, value: Any, path: tuple[Any, ...], *, held: bool = False) -> Any:
        """The value with a `Sharded` for each tensor."""
        kind = type(value)
        if isinstance(value, Tensor):
            return self._take(value, path, held=held)
        if kind in SEQUENCES:
            return with_items(value, [self.split(item, (*path, key), held=held) for key, item in enumerate(value)])
        if kind is HeldState:
            part = {key: self.split(item, (*path, key), held=True) for key, item in value.items()}
            self.held.append([list(path), part])
            return part
        if kind in MAPPINGS:
            return with_values(value, {key: self.split(item, (*path, key), held=held) for key, item in value.items()})
        return value

    def _take(self, tensor: Tensor, path: tuple[Any, ...], *, held: bool) -> Sharded:
        name = ".".join(map(str, path))
        while name in self.tensors:  # The key a.b, and the key b in a dict a, give the same name.
            name += "_"
        if isinstance(tensor, DTensor) and any(how.is_partial() for how in tensor.placements):
            raise ConfigError(
                f"{name} is a DTensor with the placement Partial, whose ranks hold parts of a sum: it cannot be saved"
            )
        self.tensors[name] = tensor
        if shards.is_ours(tensor, otherwise=held or self._leads):
            self.ours[name] = shards.local(tensor)
        if not held:
            self.digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        return Sharded(name)


def _whole(shared: StateDict, reports: list[StateDict], index: Index) -> StateDict:
    """The state of all ranks together, in its plain form."""
    for report in reports:
        for path, part in report["held"]:
            place = shared
            for key in path:
                place = place[key]
            place.update(part)
    return {SHARED: shared, RANKS: [report["own"] for report in reports], TENSORS: shards.forms(index)}


_Said = tuple[tuple[str, str] | None, str, str]
"""What a rank sends to all: the class and the message of its error, a place, and a digest."""


class _Exchange:
    """The messages of the ranks in one save: where it is written, what each rank has written, and that it is valid.

    Each message may also hold an error, so that a save that fails on one rank fails on all.
    """

    def __init__(self, world: World, group: dist.ProcessGroup | None) -> None:
        self._world = world
        self._group = group
        self._awaited = True
        """Whether the other ranks wait for a message from rank 0."""

    def opened(self, taken: _Taken | TrainerError, place: str = "") -> tuple[_Taken, str]:
        """This rank's part of the state, and the place that rank 0 has sent.

        Raises:
            TrainerError: A rank could not take its part.
            ConfigError: The ranks have different states.
        """
        if isinstance(taken, TrainerError):
            self._all(taken)  # Raises this error, or that of a rank with a lower number.
            raise taken
        said = self._all(None, place, taken.digest)
        digests = [digest for *_, digest in said]
        if apart := [f"rank {rank}" for rank, digest in enumerate(digests) if digest != digests[0]]:
            raise ConfigError(
                f"the state cannot be saved: {listed(apart, NAMED_RANKS)} and rank 0 have tensors of different "
                "names, types or sizes. Stages of a pipeline cannot be saved"
            )
        self._awaited = True
        return taken, said[0][1]

    def reported(self, report: StateDict) -> list[StateDict]:
        """On rank 0, the reports of all ranks, by rank.

        Raises:
            TrainerError: A rank could not write its part.
        """
        packed = BytesIO()
        encode(report, packed)
        with self._while_all_live():
            gathered = gather(torch.frombuffer(packed.getbuffer(), dtype=torch.uint8), self._world, self._group)
        reports = [torch.load(BytesIO(one.numpy().tobytes()), weights_only=True) for one in gathered]
        _raise_first([one["problem"] for one in reports])
        return reports

    def closed(self, place: str = "") -> str:
        """The name of the checkpoint that rank 0 has made.

        Raises:
            TrainerError: Rank 0 could not make it.
        """
        return self._all(None, place)[0][1]

    def failed(self, error: Exception) -> None:
        """If the other ranks wait, tells them that rank 0 has failed."""
        if self._awaited:
            with suppress(TrainerError):
                self._all(error)

    def _all(self, error: Exception | None, place: str = "", digest: str = "") -> list[_Said]:
        """The messages of all ranks: an error if there was one, a place, and a digest."""
        self._awaited = False
        with self._while_all_live():
            mine: _Said = (_told(error) if error else None, place, digest)
            said = all_gather(mine, self._world, self._group)
        _raise_first([problem for problem, *_ in said])
        return said

    @contextmanager
    def _while_all_live(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self._awaited = False
            raise PeerLostError(
                f"a rank was lost before its part of a checkpoint was durable: {first_lines(error)}"
            ) from error


def _told(error: Exception) -> tuple[str, str]:
    """The class and the message of an error, as another rank raises it."""
    if isinstance(error, OSError):
        kind = kind_of(error.errno)
        return kind.__name__, f"its part of the checkpoint could not be saved: {error.strerror}; {ADVICE[kind]}"
    if isinstance(error, UnusableError):
        return StorageError.__name__, f"its part of the checkpoint was written, but is not intact: {error}"
    kind = type(error) if isinstance(error, TrainerError) else TrainerError
    return kind.__name__, str(error) if isinstance(error, TrainerError) else f"{type(error).__name__}: {error}"


def _raise_first(problems: Iterable[tuple[str, str] | None]) -> None:
    for rank, problem in enumerate(problems):
        if problem:
            name, message = problem
            raise getattr(errors, name)(f"rank {rank}: {message}" if rank else message)


def fitted(saved: StateDict, path: Path, things: Things) -> StateDict:
    """The state in a checkpoint, divided as the things are now, ready for `load_state_dict`.

    Of a tensor that is divided now, only this rank's part is read, whatever the number of ranks that have written it.
    The DTensors of modules are read in their place.

    Args:
        saved: The decoded state.
        path: The checkpoint.
        things: What is restored, by name. For a thing that is None, whole tensors are read.

    Raises:
        ConfigError: Tensors have other sizes than those of the things.
        CheckpointUnusableError: The checkpoint does not contain what its state says.
    """
    try:
        index = shards.indexed(saved.get(TENSORS, {}), read_manifest(path).shards)
    except Exception as error:
        raise shards.unusable(path, f"its list of tensors is damaged ({error})") from error
    fitting = _Fitting(index, path)
    state = {
        name: fitting.fill(saved[SHARED][name], thing) for name, thing in things.items() if name in saved[SHARED]
    }
    shards.read(path, index, fitting.into)
    return state


class _Fitting:
    """Puts tensors in the place of each `Sharded`, and divides those that are divided now."""

    def __init__(self, index: Index, path: Path) -> None:
        self._index = index
        self._path = path
        self.into: dict[str, Tensor] = {}
        """The tensors to read, by name. Two things may share a tensor."""

    def fill(self, value: Any, thing: Any) -> Any:
        """The state of a thing."""
        if isinstance(thing, Mapping):
            return {key: self.fill(part, thing.get(key)) for key, part in value.items()}
        if isinstance(thing, ZeroRedundancyOptimizer):
            numbers = {parameter: number for number, parameter in enumerate(_parameters(thing))}
            ours = {numbers[parameter] for parameter in _parameters(thing.optim)}
            value = {**value, "state": {key: part for key, part in value["state"].items() if key in ours}}
        if isinstance(thing, Optimizer):
            # A new optimizer has no state yet. It will be divided as its parameters are.
            likes = map(_Like, _parameters(thing))
            each: dict[int, defaultdict[str, _Like]] = {
                number: defaultdict(partial(copy, like)) for number, like in enumerate(likes)
            }
            return self._filled(value, {"state": each})
        return self._filled(value, thing.state_dict() if thing is not None else None)

    def _filled(self, value: Any, present: Any) -> Any:
        kind = type(value)
        if kind is Sharded:
            return self._tensor(value.name, present)
        if isinstance(value, Tensor):
            return _divided(value, present.tensor if isinstance(present, _Like) else present)
        if kind in SEQUENCES:
            return with_items(value, [self._filled(item, _at(present, key)) for key, item in enumerate(value)])
        if kind in MAPPINGS:
            return with_values(value, {key: self._filled(item, _at(present, key)) for key, item in value.items()})
        return value

    def _tensor(self, name: str, present: Any) -> Tensor:
        if name not in self._index:
            raise shards.unusable(self._path, f"{name} is not in its list of tensors")
        if name not in self.into:
            self.into[name] = self._place(self._index[name], present)
        return self.into[name]

    @staticmethod
    def _place(placed: Placed, present: Any) -> Tensor:
        """The tensor into which a saved tensor is read."""
        like = present.tensor if isinstance(present, _Like) else present
        if not isinstance(like, DTensor):
            return shards.empty(placed)
        tensor: Tensor = like.detach()
        if like is present:
            return tensor
        if placed.size == tuple(like.shape):
            return torch.empty_like(tensor, dtype=placed.dtype)
        if placed.divided:
            whole = [Replicate()] * like.device_mesh.ndim
            return empty_dtensor(placed.size, dtype=placed.dtype, device_mesh=like.device_mesh, placements=whole)
        return shards.empty(placed)


@dataclass(frozen=True, slots=True)
class _Like:
    """Marks a tensor that only shows how a saved tensor is to be divided. Its own values stay."""

    tensor: Tensor


def _divided(whole: Tensor, like: Any) -> Tensor:
    """Divides a tensor that all ranks have in the same way as `like`, if the two have the same size."""
    if not isinstance(like, DTensor) or whole.shape != like.shape:
        return whole
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _at(present: Any, key: Any) -> Any:
    if isinstance(present, defaultdict) or (isinstance(present, Mapping) and key in present):
        return present[key]
    return present[key] if isinstance(present, list | tuple) and key < len(present) else None
