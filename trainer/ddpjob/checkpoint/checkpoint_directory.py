"""Writes checkpoints as files, and removes old checkpoints. The module `reading` finds the newest checkpoint.

Only rank 0 uses this module. A directory belongs to one job. Nevertheless two attempts may write to it at the same
time, if an unreachable machine still runs the earlier attempt, and so may two jobs, by mistake. In either case the
earlier writer stops writing when it notices the later one.

The directory may also contain other files. Therefore checkpoints are removed or renamed only if their manifests show
that they led to this run, or if they are broken.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from ddpjob_rank.console import warn
from ddpjob_rank.errors import (
    CheckpointUnusableError,
    StorageError,
    StorageFullError,
    SupersededError,
    TrainerError,
)
from ddpjob_rank.machine.storage import ADVICE, kind_of
from ddpjob_rank.manifests.manifest import (
    MANIFEST,
    NAME,
    NO_ATTEMPT,
    SHARD,
    Manifest,
    Shard,
    checkpoints_in,
    encoded,
    read_manifest,
)
from ddpjob_rank.manifests.unusable import BrokenError, ForeignError, NewerError, UnavailableError, UnusableError

from .content import Content, Sink, sync, write_synced
from .reading import (
    BROKEN,
    PATIENCE_SECONDS,
    STATE,
    Decode,
    Decoded,
    Found,
    find_newest,
    read_whole,
    sort_key,
)

TEMPORARY_PREFIX = ".step-ddpjob-train-"
"""The prefix of temporary directories, which are garbage when their writer has ended."""

OURS = re.compile(rf"{re.escape(MANIFEST)}|{re.escape(STATE)}|{SHARD.pattern}|\.metadata")
"""The names of the files that a save of this program consists of."""

TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
"""The errors of rename(2) if the new name of a directory is taken."""

NOTHING_DONE = "Nothing was started or removed"
START_OVER = "with --start-over training begins at step 0 if no other checkpoint can be used"
NEWER = f"{NOTHING_DONE}. Use the version that wrote it, or name another --checkpoint-dir; {START_OVER}"
NONE_IS_WHOLE = f"{NOTHING_DONE}. Name another --checkpoint-dir; {START_OVER}"


class CheckpointDirectory:
    """The checkpoints in one directory.

    Raises:
        ConfigError, StorageFullError, StorageError: The directory cannot be created, read or written.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory.absolute()
        self._keep = keep
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in self.directory.glob(f"{TEMPORARY_PREFIX}*"):
                if not leftover.is_symlink():  # The target of a link belongs to somebody else.
                    self._clear(leftover)
            with TemporaryFile(dir=self.directory):
                pass
            self._paths()
        except OSError as error:
            kind = kind_of(error.errno)
            raise kind(
                f"the checkpoint directory {self.directory} cannot be used: {error.strerror}; {ADVICE[kind]}"
            ) from error

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
            CheckpointUnusableError: Checkpoints of this program cannot be used, and training may not start over. No
                file has been changed.
            StorageUnavailableError: A checkpoint that may be the newest cannot be read.
        """
        search = find_newest(self._paths, decode, retry_seconds).warn_passed_over()
        broken = search.of_kind(BrokenError)
        if not start_over:
            search.refuse_newer(NEWER)
            unusable = [*broken, *self._set_aside_before()]
            if search.found is None and unusable:
                raise CheckpointUnusableError(
                    f"no checkpoint in {self.directory} can be used; the newest is {unusable[0].name}. "
                    f"{NONE_IS_WHOLE}"
                )
        for path in broken:
            self._set_aside(path)
        if search.found is None and search.passed_over:
            warn(f"there is no valid checkpoint in {self.directory}: training starts from the beginning")
        return search.found

    def newest_attempt(self) -> int:
        """The latest attempt that has written to this directory; NO_ATTEMPT if there is none."""
        return int(self._newest_writer()[0])

    def write(
        self,
        manifest: Manifest,
        encode: Callable[[Sink], object],
        check: Callable[[Path], object] = Path.exists,
        shards: Callable[[Path], tuple[Shard, ...]] = lambda _: (),
    ) -> Path:
        """Writes a checkpoint, and only then removes the oldest checkpoints.

        Args:
            manifest: The description of the checkpoint. This method adds its time, size and checksum.
            encode: Writes the state.
            check: Raises if the file with the state cannot be read back.
            shards: Writes the tensors of a sharded state into the directory of the checkpoint. Called first.

        Raises:
            StorageFullError, ConfigError, StorageError: The checkpoint could not be written, because the storage is
                full, forbids it, or fails. Nothing of the checkpoint is left, and earlier ones are intact.
            SupersededError: A later attempt or run has written to this directory, and takes over.
        """
        name, content = f"step-{manifest.step:08}", Content()
        try:
            self._refuse_if_late(manifest)
            with self.workspace() as workspace:
                fresh = workspace / name
                fresh.mkdir()
                manifest = replace(manifest, shards=shards(fresh))
                content.fill(fresh / STATE, encode)
                check(fresh / STATE)
                _write_manifest(fresh, manifest, content)
                path = self._put_in_place(fresh, manifest)
            sync(self.directory)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.directory.is_dir():
                raise self._superseded(manifest, "it has removed the checkpoint that this run was writing") from error
            raise self._not_written(self.directory / name, content.size, error) from error
        self._prune(path, manifest)
        return path

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Creates a temporary directory. Removes it afterwards or, if the process dies, at the next start."""
        with TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=self.directory, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def _put_in_place(self, fresh: Path, manifest: Manifest) -> Path:
        """Renames a written checkpoint to its final name, to which it adds a number if the name is taken."""
        for path in _names(self.directory / fresh.name):
            self._refuse_if_late(manifest)
            try:
                fresh.rename(path)
            except OSError as error:
                if error.errno not in TAKEN:
                    raise
            else:
                if path.name != fresh.name:
                    taken = self.directory / fresh.name
                    warn(f"{taken} is there already: step {manifest.step} is saved as {path.name}")
                return path
        raise AssertionError("a directory does not have all names")

    def tidy(self, manifest: Manifest, newest: Path) -> None:
        """Removes old checkpoints, except `newest`, that earlier attempts have not removed.

        `manifest` is the manifest of a run that has resumed from `newest`.
        """
        self._remove_all((path for path in self._old(manifest) if path != newest), manifest)

    def _prune(self, path: Path, manifest: Manifest) -> None:
        """Removes old checkpoints if the checkpoint that was just written, at `path`, can be read back."""
        old = self._old(manifest)
        if old and self._is_good(path):
            self._remove_all(old, manifest)

    def _old(self, manifest: Manifest) -> list[Path]:
        """The checkpoints to remove: all but the newest `keep` that led to this one, and all but `keep` broken ones.

        A checkpoint of a later step cannot have led to this one, because training would have resumed from it. Such a
        checkpoint is not counted, and not removed, until training has passed its step. Broken checkpoints include
        those whose manifests are torn, so that they no longer show to which run the checkpoint belonged.
        """
        ours = [(order, path) for order, path in self._line(self._paths(), manifest) if order[1] <= manifest.step]
        aside = self._set_aside_before()
        torn = [(sort_key(path, unknown=NO_ATTEMPT), path) for path in aside if _is_torn(path)]
        broken = [*torn, *self._line(aside, manifest)]
        return [path for known in (ours, broken) for _, path in sorted(known)[: -self._keep]]

    def _remove_all(self, paths: Iterable[Path], manifest: Manifest) -> None:
        for path in paths:
            try:
                self._remove(path, manifest)
            except OSError as error:
                warn(f"the old checkpoint {path} could not be removed: {error.strerror}")

    def _line(self, paths: list[Path], manifest: Manifest) -> list[tuple[tuple[tuple[int, str], int], Path]]:
        """Sort key and path of each checkpoint whose manifest shows that it led to `manifest`."""
        known = []
        for path in paths:
            with suppress(UnusableError):
                other = read_manifest(path)
                if manifest.continues(other) and other.order <= manifest.order:
                    known.append((other.order, path))
        return known

    def _is_good(self, path: Path) -> bool:
        """Whether a checkpoint that has been written can be read back.

        Raises:
            StorageError: The content of the checkpoint differs from what was written.
        """
        try:
            read_whole(path, afresh=True)
        except UnavailableError as error:
            warn(f"checkpoint {path} cannot be read back now ({error}): older ones stay")
            return False
        except UnusableError as error:
            if not path.exists():  # A later attempt has removed it.
                return False
            raise StorageError(
                f"checkpoint {path} was written, but is not intact: {error}; {ADVICE[StorageError]}. Older ones stay"
            ) from error
        return True

    def _remove(self, path: Path, manifest: Manifest) -> None:
        """Removes a checkpoint if it exists. Renames it first, so that its name never refers to half a checkpoint.

        Raises:
            SupersededError: A writer later than the manifest's has put a checkpoint there. That checkpoint stays.
        """
        with self.workspace() as workspace, suppress(FileNotFoundError):
            aside = workspace / path.name
            path.rename(aside)
            # Check after the rename, because no other writer can replace the checkpoint in the workspace.
            if sort_key(aside, unknown=NO_ATTEMPT)[0] > manifest.writer:
                aside.rename(path)
            else:
                (aside / MANIFEST).unlink()  # Otherwise `_clear` would restore the checkpoint.
        self._refuse_if_late(manifest)

    def _set_aside(self, path: Path) -> None:
        """Renames a broken checkpoint so that its name ends with `.broken`."""
        for aside in _names(path.with_name(f"{path.name}.broken")):
            try:
                path.rename(aside)
            except OSError as error:
                if error.errno not in TAKEN:
                    warn(f"the broken checkpoint {path} could not be set aside: {error.strerror}")
                    return
            else:
                warn(f"the broken checkpoint {path} is set aside as {aside.name}")
                return

    def _set_aside_before(self) -> list[Path]:
        """The broken checkpoints that were set aside, in descending order of their names."""
        return sorted((path for path in self.directory.iterdir() if BROKEN.fullmatch(path.name)), reverse=True)

    def _clear(self, leftover: Path) -> None:
        """Removes a temporary directory that a writer has left behind, but keeps a complete checkpoint in it.

        The writer may belong to an earlier attempt, which may still be writing. A checkpoint is complete if it has a
        manifest, because the manifest is written last.
        """
        for manifest in leftover.glob(f"*/{MANIFEST}"):
            try:
                read_manifest(manifest.parent)
            except UnavailableError:
                return  # The checkpoint may be complete: the next start tries again.
            except (BrokenError, ForeignError):
                continue
            except NewerError:
                pass
            if NAME.fullmatch(manifest.parent.name):
                with suppress(OSError):
                    manifest.parent.rename(self.directory / manifest.parent.name)
        shutil.rmtree(leftover, ignore_errors=True)

    def _refuse_if_late(self, manifest: Manifest) -> None:
        newest = self._newest_writer()
        if newest > manifest.writer:
            evidence = f"there is a checkpoint of {_named(newest)}, and this is {_named(manifest.writer)}"
            raise self._superseded(manifest, evidence)

    def _newest_writer(self) -> tuple[float, str]:
        return max((sort_key(path, unknown=NO_ATTEMPT)[0] for path in self._paths()), default=(NO_ATTEMPT, ""))

    def _superseded(self, manifest: Manifest, evidence: str) -> SupersededError:
        return SupersededError(
            f"a later run has taken over {self.directory}: {evidence}. Step {manifest.step} is not saved. "
            "If both should run, give each its own --checkpoint-dir"
        )

    def _paths(self) -> list[Path]:
        return checkpoints_in(self.directory)

    def _not_written(self, path: Path, needed: int, error: OSError) -> TrainerError:
        kind = kind_of(error.errno)
        room = f" (needed {needed} bytes, free {_free(self.directory)})" if kind is StorageFullError else ""
        return kind(
            f"checkpoint {path} could not be saved: {error.strerror}{room}; {ADVICE[kind]}."
            " The checkpoints before it are intact"
        )


def _is_torn(aside: Path) -> bool:
    """Whether a checkpoint that was set aside has a torn manifest, and contains no files of other programs."""
    try:
        read_manifest(aside)
    except BrokenError:
        return all(OURS.fullmatch(path.name) for path in aside.iterdir())
    except UnusableError:
        pass
    return False


def _free(directory: Path) -> str:
    try:
        return str(shutil.disk_usage(directory).free)
    except OSError:
        return "unknown"


def _write_manifest(path: Path, manifest: Manifest, content: Content) -> None:
    whole = replace(
        manifest,
        savedAt=datetime.now(UTC).isoformat(timespec="milliseconds"),
        size=content.size,
        sha256=content.sha256,
    )
    write_synced(path / MANIFEST, encoded(whole))
    sync(path)


def _named(writer: tuple[float, str]) -> str:
    attempt, run = writer
    return f"attempt {attempt} of run {run}" if run else f"attempt {attempt}"


def _names(path: Path) -> Iterator[Path]:
    """Yields the path, then the path with `-2`, `-3` and so on at its end, but skips those that exist."""
    for number in count(1):
        name = path if number == 1 else path.with_name(f"{path.name}-{number}")
        if not os.path.lexists(name):
            yield name
