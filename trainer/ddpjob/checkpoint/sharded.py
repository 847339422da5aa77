"""Saves state that is divided among ranks. `shard_fitting` restores it.

Such state are the DTensors of fully_shard and tensor parallelism, and the states of ZeroRedundancyOptimizer.

    step-00000120/state.pt         what is not divided, and the list of all tensors in the files below
    step-00000120/__1_0.distcp     the tensors, or parts of tensors, that rank 1 has written
    step-00000120/manifest.json    with the size and the checksum of each file; rank 0 writes it when all are durable

All ranks write into one directory, which their nodes must share. They coordinate a save in a process group of
their own, in a thread of their own: the thread that trains only copies its part of the state. They begin a save
together (see `common_start`), so that a rank that does not come cannot make the others hang.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from ddpjob_rank import errors
from ddpjob_rank.console import listed
from ddpjob_rank.errors import (
    CheckpointMissedError,
    ConfigError,
    PeerLostError,
    StorageError,
    TrainerError,
)
from ddpjob_rank.machine.storage import ADVICE, kind_of
from ddpjob_rank.manifests.manifest import Manifest, Shard
from ddpjob_rank.manifests.unusable import UnusableError
from ddpjob_rank.world import World
from torch import Tensor

from ddpjob.group.collectives import all_gather, gather

from . import shard_files as shards
from .checkpoint_directory import CheckpointDirectory
from .common_start import CommonStart
from .divided import Parts
from .encoding import PLAIN, RANKS, SHARED, TENSORS, StateDict, encode, first_lines, from_bytes, to_bytes
from .plain_values import NotPlainError, plain
from .shard_files import Index
from .writer import BackgroundSaves

NAMED_RANKS = 3
"""The most ranks that a message names."""

RANKS_SECONDS = 60.0
"""How long ranks wait for each other in a save before they give it up."""

ONE_DIRECTORY = (
    "State that is divided among ranks is written by all of them, so all nodes need the same directory: in a pod, a "
    "volume with the access mode ReadWriteMany"
)


class ShardedSaver(BackgroundSaves):
    """Saves one run whose state is divided. Each rank makes the same calls in the same order.

    Constructing it and `located` are the only calls in which the thread that trains waits for other ranks.
    """

    def __init__(
        self,
        directory: Path,
        files: CheckpointDirectory | None,
        world: World,
        divided: Collection[str],
        *,
        group: dist.ProcessGroup | None = None,
        check_finite: Callable[[StateDict], object] = lambda _: None,
    ) -> None:
        """Prepares saves into a directory.

        Args:
            directory: Where the checkpoints are, on this node.
            files: The same directory on rank 0; None on others.
            world: This rank.
            divided: The names of the objects whose state is divided.
            group: A process group of all ranks, with gloo. While a save is written, nothing else may use it.
            check_finite: Raises DivergedError if a state has a parameter that must not be saved. Each rank gives it
                the parts that it writes.

        Raises:
            ConfigError: The nodes do not share this directory.
        """
        super().__init__()
        self._directory = directory.absolute()
        self._files = files
        self._world = world
        self._divided = frozenset(divided)
        self._group = group
        self._check_finite = check_finite
        self._start = CommonStart(group, world) if group else None
        self._refuse_unshared()

    def begin(
        self, manifest: Manifest, state: StateDict, own: Any, position: int, seconds: float = RANKS_SECONDS
    ) -> None:
        """Copies this rank's part of a state, and begins to write the copy.

        The previous save must have finished.

        Args:
            manifest: The description of the checkpoint. Rank 0's is written.
            state: For each object, by name, what `state_of` returns.
            own: This rank's own state, as plain values. Nothing may change it after this call.
            position: Where training is. Nothing is saved if ranks are at different positions.
            seconds: How long to wait until all ranks have come to this save.
        """
        try:
            taken: _Taken | TrainerError = self._take(state, own)
        except TrainerError as error:
            taken = error  # The other ranks must learn of the error, so that this save fails on all of them.
        write = partial(self._lead, manifest, taken) if self._files else partial(self._follow, taken)

        def write_together() -> object:
            if self._start:
                self._start.await_all(position, seconds)
            return write()

        # A daemon: a process that ends after an error must not wait for ranks that never come to this save.
        self._begin(manifest, write_together, daemon=True)

    def located(self, name: str) -> Path:
        """The path of a checkpoint on this node. Rank 0 gives its name. No save may be under way."""
        return self._directory / all_gather(name, self._world, self._group)[0]

    def _refuse_unshared(self) -> None:
        """Has each rank write a file into a directory that rank 0 has made."""
        with self._files.workspace() if self._files else nullcontext(self._directory) as workspace:
            place = self.located(workspace.name)
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
        parts = Parts(leads=self._world.leads)
        trees = {
            name: parts.split(value, (name,)) if name in self._divided else value
            for name, value in state.items()
            if self._world.leads or name in self._divided
        }
        shared = trees if self._world.leads else {}
        try:
            rest = plain({"shared": shared, "held": parts.held, "own": own})
        except NotPlainError as error:
            raise CheckpointMissedError(f"the state cannot be saved: {error}. {PLAIN}") from error
        copies = self._copy({**rest, "ours": parts.ours})
        return _Taken(parts.tensors, digest=parts.digest.hexdigest(), **copies)

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
            self._check_finite(taken.shared | taken.divided(self._divided))
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

    def divided(self, names: Iterable[str]) -> StateDict:
        """For each divided object, the tensors that this rank writes."""
        return {
            name: {
                key.removeprefix(f"{name}."): copy for key, copy in self.ours.items() if key.startswith(f"{name}.")
            }
            for name in names
        }


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
        _, place, first = said[0]
        if differing := [f"rank {rank}" for rank, (_, _, digest) in enumerate(said) if digest != first]:
            raise ConfigError(
                f"the state cannot be saved: {listed(differing, NAMED_RANKS)} and rank 0 have tensors of different "
                "names, types or sizes. Stages of a pipeline cannot be saved"
            )
        self._awaited = True
        return taken, place

    def reported(self, report: StateDict) -> list[StateDict]:
        """On rank 0, the reports of all ranks, by rank.

        Raises:
            TrainerError: A rank could not write its part.
        """
        with self._while_all_live():
            reports = [from_bytes(each) for each in gather(to_bytes(report), self._world, self._group)]
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
        """The messages of all ranks."""
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
