"""The rules for a job's checkpoints in any storage: which is the newest, who may write, and what is removed.

Only rank 0 uses a storage, which belongs to one job. Nevertheless two attempts may write to it at the same time, if
an unreachable machine still runs the earlier attempt, and so may two jobs, by mistake. In either case the earlier
writer stops writing when it notices the later one.

A storage may also contain other things. Therefore checkpoints are removed or set aside only if their manifests show
that they led to this run, or if they are broken.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.errors import CheckpointUnusableError, StorageError, SupersededError
from ddpjob_rank.machine.storage import ADVICE
from ddpjob_rank.manifests.manifest import NO_ATTEMPT, Manifest
from ddpjob_rank.manifests.unusable import BrokenError, UnavailableError, UnusableError

from .content import Sink
from .reading import PATIENCE_SECONDS, Decode, Decoded, Entry, Found, Reader, SortKey, find_newest

NOTHING_DONE = "Nothing was started or removed"
START_OVER = "with --start-over, ddpjob-train begins at step 0 if no other checkpoint can be used"
NEWER = f"{NOTHING_DONE}. Use the version that wrote it, or name another checkpoint directory; {START_OVER}"
NONE_IS_WHOLE = f"{NOTHING_DONE}. Name another checkpoint directory; {START_OVER}"


class CheckpointStorage(Reader[Entry]):
    """The checkpoints of one job, in a directory or in an object store."""

    checks_files: bool
    """Whether `write` calls its `check`. It does not if the state is not written to a file on this machine."""

    def __init__(self, address: str, keep: int) -> None:
        """`address` is the path or the URL of the storage, and `keep` how many checkpoints stay."""
        self.address = address
        self._keep = keep

    @abstractmethod
    def write(
        self, manifest: Manifest, encode: Callable[[Sink], object], check: Callable[[Path], object] = Path.exists
    ) -> Entry:
        """Writes a checkpoint, and only then removes the oldest checkpoints.

        Args:
            manifest: The description of the checkpoint. This method adds its time, size and checksum.
            encode: Writes the state.
            check: Raises if the file with the state cannot be read back.

        Raises:
            StorageFullError, ConfigError, StorageError: The checkpoint could not be written, because the storage is
                full, forbids it, or fails. Earlier checkpoints are intact.
            SupersededError: A later attempt or run has written to this storage, and takes over.
        """

    def newest(
        self, decode: Decode[Decoded], *, start_over: bool = False, retry_seconds: float = PATIENCE_SECONDS
    ) -> Found[Decoded] | None:
        """Finds the newest checkpoint from which training can go on; returns None if there is none.

        Newer checkpoints that are broken are set aside. Checkpoints of other programs stay unchanged.

        Args:
            decode: Reads a state.
            start_over: Whether training may begin at step 0, or go on from an older checkpoint, if newer checkpoints
                of this program cannot be used.
            retry_seconds: How many seconds to keep trying if a checkpoint cannot be read.

        Raises:
            CheckpointUnusableError: Checkpoints of this program cannot be used, and training must not start over. No
                checkpoint has been changed.
            StorageUnavailableError: A checkpoint that may be the newest cannot be read.
        """
        search = find_newest(self._listed, decode, retry_seconds, reader=self).warn_passed_over()
        broken = search.of_kind(BrokenError)
        if not start_over:
            search.refuse_newer(NEWER)
            unusable = [*broken, *self._set_aside_before()]
            if search.found is None and unusable:
                raise CheckpointUnusableError(
                    f"no checkpoint in {self.address} can be used; the newest is {Path(str(unusable[0])).name}. "
                    f"{NONE_IS_WHOLE}"
                )
        for checkpoint in broken:
            self._set_aside(checkpoint)
        if search.found is None and search.passed_over:
            warn(f"there is no valid checkpoint in {self.address}: training starts from the beginning")
        return search.found

    def newest_attempt(self) -> int:
        """The latest attempt that has written to this storage; NO_ATTEMPT if there is none."""
        return int(self._newest_writer()[0])

    def tidy(self, manifest: Manifest, newest: str) -> None:
        """Removes old checkpoints, except the one at `newest`, that earlier attempts have not removed.

        `manifest` is the manifest of a run that has resumed from `newest`, which is a path or a URL.
        """
        self._remove_all((checkpoint for checkpoint in self._old(manifest) if str(checkpoint) != newest), manifest)

    @abstractmethod
    def _listed(self) -> list[Entry]:
        """All checkpoints, whether they are valid or not, but not those that were set aside."""

    @abstractmethod
    def _set_aside(self, checkpoint: Entry) -> None:
        """Marks a broken checkpoint, so that it is not listed any more."""

    @abstractmethod
    def _set_aside_before(self) -> list[Entry]:
        """The broken checkpoints that were set aside, in descending order of their names."""

    @abstractmethod
    def _is_torn(self, aside: Entry) -> bool:
        """Whether a checkpoint that was set aside has a torn manifest, and contains no files of other programs."""

    @abstractmethod
    def _check_written(self, checkpoint: Entry) -> None:
        """Reads back a checkpoint that has just been written.

        Raises:
            UnusableError: It cannot be read back.
        """

    @abstractmethod
    def _remove(self, checkpoint: Entry, manifest: Manifest) -> None:
        """Removes a checkpoint if it exists, so that its name never refers to half a checkpoint.

        Raises:
            SupersededError: A writer later than the manifest's has put a checkpoint there. That checkpoint stays.
        """

    def _prune(self, checkpoint: Entry, manifest: Manifest) -> None:
        """Removes old checkpoints if the one that was just written can be read back."""
        old = self._old(manifest)
        if old and self._is_good(checkpoint):
            self._remove_all(old, manifest)

    def _is_good(self, checkpoint: Entry) -> bool:
        """Whether a checkpoint that has been written can be read back.

        Raises:
            StorageError: The content of the checkpoint differs from what was written.
        """
        try:
            self._check_written(checkpoint)
        except UnavailableError as error:
            warn(f"checkpoint {checkpoint} cannot be read back now ({error}): older checkpoints are kept")
            return False
        except UnusableError as error:
            if self.identity(checkpoint) is None:  # A later attempt has removed it.
                return False
            raise StorageError(
                f"checkpoint {checkpoint} was written, but is not intact: {error}; {ADVICE[StorageError]}. Older"
                " checkpoints are kept"
            ) from error
        return True

    def _old(self, manifest: Manifest) -> list[Entry]:
        """Checkpoints to remove: all but the newest `keep` that led to `manifest`, and all but `keep` broken ones.

        A checkpoint of a later step cannot have led to `manifest`, because training would have resumed from it.
        Such a checkpoint is neither counted nor removed until training has passed its step. Broken checkpoints
        include those whose manifests are torn, so that they no longer show to which run the checkpoint belonged.
        """
        ours = [(order, entry) for order, entry in self._line(self._listed(), manifest) if order[1] <= manifest.step]
        aside = self._set_aside_before()
        torn = [(self.sort_key(entry, unknown=NO_ATTEMPT), entry) for entry in aside if self._is_torn(entry)]
        broken = [*torn, *self._line(aside, manifest)]
        return [
            entry
            for known in (ours, broken)
            for _, entry in sorted(known, key=lambda pair: (pair[0], str(pair[1])))[: -self._keep]
        ]

    def _remove_all(self, checkpoints: Iterable[Entry], manifest: Manifest) -> None:
        for checkpoint in checkpoints:
            try:
                self._remove(checkpoint, manifest)
            except OSError as error:
                warn(f"the old checkpoint {checkpoint} could not be removed: {error.strerror}")

    def _line(self, checkpoints: list[Entry], manifest: Manifest) -> list[tuple[SortKey, Entry]]:
        """The sort key and the entry of each checkpoint that led to `manifest`, according to its own manifest."""
        known: list[tuple[SortKey, Entry]] = []
        for checkpoint in checkpoints:
            with suppress(UnusableError):
                other = self.manifest(checkpoint)
                if manifest.continues(other) and other.order[:2] <= manifest.order[:2]:
                    known.append((other.order, checkpoint))
        return known

    def _refuse_if_late(self, manifest: Manifest) -> None:
        newest = self._newest_writer()
        if self._is_late(manifest, newest):
            evidence = f"there is a checkpoint of {named(newest)}, and this is {named(manifest.writer)}"
            raise self._superseded(manifest, evidence)

    def _is_late(self, manifest: Manifest, newest: tuple[float, str]) -> bool:
        """Whether `newest`, the latest writer in this storage, has taken over from the manifest's writer."""
        return newest > manifest.writer

    def _newest_writer(self) -> tuple[float, str]:
        return max(
            (self.sort_key(checkpoint, unknown=NO_ATTEMPT)[0] for checkpoint in self._listed()),
            default=(NO_ATTEMPT, ""),
        )

    def _superseded(self, manifest: Manifest, evidence: str) -> SupersededError:
        return SupersededError(
            f"a later run has taken over {self.address}: {evidence}. Step {manifest.step} is not saved. "
            "If both should run, give each its own checkpoint directory"
        )


def named(writer: tuple[float, str]) -> str:
    """A writer's attempt and, if it is known, its run, in words."""
    attempt, run = writer
    return f"attempt {attempt} of run {run}" if run else f"attempt {attempt}"
