"""Follows the indices that a DataLoader's sampler yields, and resumes after the indices that were seen."""

import operator
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DistributedSampler, Sampler

from .beginning import Beginning, beginning_of
from .loader_parts import Generators

Check = tuple[int, int]
"""Identifies the indices of a batch: how many there are, and a checksum of them."""


NOTHING: Check = (0, 0)


class Seen(NamedTuple):
    """The part of an epoch that a rank has seen."""

    batches: int
    samples: int
    """The number of indices in these batches."""
    check: Check
    """The check of the last of these batches."""
    start: int = 0
    """For a DistributedSampler: how many samples of the epoch all ranks had seen, when this rank's part began."""
    replica: int = 0
    replicas: int = 1
    """For a DistributedSampler: its rank and its number of ranks, which differ from the job's if ranks share data."""


@dataclass(slots=True)
class Handed:
    """How many batches of an epoch training has received, including those before a resumption."""

    batches: int = 0


class Drawn(NamedTuple):
    """A batch of indices, and how many indices have been drawn up to its end."""

    samples: int
    indices: Any


class FollowedSampler(Sampler[Any]):
    """Yields what another sampler yields, and keeps the batches of indices that training has not seen yet.

    A DataLoader with workers draws indices ahead. Only the loop shows how many of these batches training has seen.
    """

    def __init__(self, sampler: Iterable[Any], handed: Handed) -> None:
        self.sampler = sampler
        self._handed = handed
        self._drawn: deque[Drawn] = deque()
        self.begin({})

    def begin(
        self,
        generators: Generators,
        rest: Iterator[Any] | None = None,
        seen: Seen | None = None,
        *,
        undo: Beginning | None = None,
    ) -> None:
        """Prepares the next iteration: over a whole epoch, or over the part that was not seen.

        `generators` are those of the loader's parts. If `undo` is given, these generators, and the process's, are set
        to those states before the first indices are drawn: the DataLoader draws a seed for its workers, which the
        former process had already drawn.
        """
        self.seen = seen or Seen(0, 0, NOTHING)
        """The part of the epoch that was seen before this iteration."""
        self.beginning: Beginning | None = None
        """The states of the generators when the first indices of the epoch were drawn; None until then."""
        self._handed.batches = self._drawn_batches = self.seen.batches
        self._rest = rest
        self._drawn.clear()
        self._exhausted = False
        self._generators, self._undo = generators, undo

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]  # Without a length it raises TypeError, as it should.

    def __getattr__(self, name: str) -> Any:
        if name == "sampler":  # `__init__` has not run, as in a copy.
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __iter__(self) -> Iterator[Any]:
        """Does nothing before `next`: a DataLoader with persistent workers makes an iterator that it never uses."""
        rest, self._rest = self._rest, None
        if self._undo:
            self._undo.put_back(self._generators)
        if rest is None:
            self.beginning = beginning_of(self._generators)
        samples = self.seen.samples
        for indices in self.sampler if rest is None else rest:
            samples += len(indices) if type(indices) is list else len(_each(indices))
            self._drawn.append(Drawn(samples, indices))
            self._drawn_batches += 1
            while len(self._drawn) > self._drawn_batches - self._handed.batches + 1:
                self._drawn.popleft()
            yield indices
        self._exhausted = True

    @property
    def ahead(self) -> bool:
        """Whether the sampler was asked for more than training has seen. A request for its end counts, too."""
        return self._exhausted or self._drawn_batches > self._handed.batches

    def position(self) -> Seen | None:
        """The part that training has seen; None if the loader took the indices of its batches from elsewhere."""
        if self._handed.batches == self.seen.batches:
            return self.seen
        place = self._drawn_batches - self._handed.batches
        if not 0 <= place < len(self._drawn):
            return None
        last = self._drawn[-1 - place]
        seen = self.seen._replace(batches=self._handed.batches, samples=last.samples, check=check(last.indices))
        sampler = distributed(self.sampler)
        return seen._replace(replica=sampler.rank, replicas=sampler.num_replicas) if sampler else seen


def check(indices: Any) -> Check:
    """Identifies a batch of indices."""
    each = [_plain(index) for index in _each(indices)]
    return len(each), zlib.crc32(repr(each).encode())


def distributed(sampler: object) -> DistributedSampler[Any] | None:
    """The DistributedSampler that divides the data among the ranks; None if another class or method does that."""
    inner = _within(sampler)
    ours = isinstance(inner, DistributedSampler) and type(inner).__iter__ is DistributedSampler.__iter__
    return inner if ours else None  # type: ignore[return-value]


def after(sampler: Any, seen: Seen) -> tuple[Iterator[Any], bool]:
    """The indices that a sampler yields after those that were seen.

    Returns these indices, and whether the sampler yields the same ones as before, as far as that can be checked.
    """
    counts_samples = type(sampler) is BatchSampler  # The batch size may have changed.
    single = sampler.sampler if counts_samples else sampler
    indices = iter(single)
    skipped = islice(indices, seen.samples if counts_samples else seen.batches)
    length, _ = seen.check
    last = deque(skipped, maxlen=length if counts_samples else 1)
    same = check(last if counts_samples else last[0]) == seen.check if last else length == 0
    if counts_samples and seen.samples % sampler.batch_size:
        # After a batch that is not full, the sampler was asked for one more index, and may have drawn random numbers,
        # as RandomSampler does.
        indices = chain([*islice(indices, 1)], indices)
    return _batches(sampler, indices), same


def divided(sampler: Any, each: Sequence[Seen]) -> tuple[Iterator[Any], Seen, int, bool]:
    """This rank's share of the remaining indices of a DistributedSampler's epoch, for any number of ranks.

    `each` has what the former ranks have seen.

    Returns the indices, what this rank has seen of its part of the epoch, how many samples are repeated because the
    number of ranks has changed, and whether the order is the same as before, as far as that can be checked.
    """
    inner = distributed(sampler)
    assert inner is not None
    order, first = _order(inner), each[0]
    before = _part(order, first, drop_last=inner.drop_last)[: first.samples]
    length, _ = first.check
    same = not before or check(before[-length:]) == first.check
    own = next((seen for seen in each if (seen.replica, seen.replicas) == (inner.rank, inner.num_replicas)), None)
    repeated = 0
    if own is None:
        start = first.start + min(seen.samples for seen in each) * first.replicas
        own = Seen(0, 0, NOTHING, start, inner.rank, inner.num_replicas)
        repeated = 0 if inner.drop_last else -max(0, len(order) - start) % inner.num_replicas
    left = _part(order, own, drop_last=inner.drop_last)[own.samples :]
    return _batches(sampler, iter(left)), own, repeated, same


def _order(sampler: DistributedSampler[Any]) -> list[int]:
    """The order of all samples in the sampler's epoch."""
    whole = copy(sampler)
    whole.num_replicas, whole.rank = 1, 0
    whole.num_samples = whole.total_size = len(sampler.dataset)  # type: ignore[arg-type]
    return list(whole)


def _part(order: list[int], seen: Seen, *, drop_last: bool) -> list[int]:
    """A rank's part of the samples from `seen.start` on, divided as DistributedSampler would divide them."""
    rest = order[seen.start :]
    over = len(rest) % seen.replicas
    if over and drop_last:
        rest = rest[:-over]
    elif over:
        rest += islice(cycle(order), seen.replicas - over)
    return rest[seen.replica :: seen.replicas]


def _batches(sampler: Any, indices: Iterator[Any]) -> Iterator[Any]:
    """The indices. If the sampler is a batch sampler, they come in batches."""
    if type(sampler) is not BatchSampler:
        return indices
    return iter(BatchSampler(indices, sampler.batch_size, sampler.drop_last))


def _within(sampler: object) -> object:
    return sampler.sampler if type(sampler) is BatchSampler else sampler


def _each(indices: Any) -> Sequence[Any]:
    """The indices of a batch. A sampler without batches yields single indices."""
    if isinstance(indices, Sized) and isinstance(indices, Iterable) and not isinstance(indices, str):
        with suppress(TypeError):  # A tensor with a single index has no length.
            return [*indices]
    return [indices]


def _plain(index: Any) -> object:
    try:
        return operator.index(index)
    except TypeError:
        return repr(index)
