"""Writes checkpoints as files, and removes old ones. The module `checkpoint_storage` says which may be removed."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from ddpjob_rank.console import warn
from ddpjob_rank.errors import StorageFullError, TrainerError
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

from .checkpoint_storage import CheckpointStorage
from .content import Content, Sink, sync, write_synced
from .reading import BROKEN, STATE, FileReader, read_whole

TEMPORARY_PREFIX = ".step-ddpjob-train-"
"""The prefix of temporary directories. Once their writer has ended, they are garbage."""

OURS = frozenset({MANIFEST, STATE, ".metadata"})
"""The names of this program's files in a checkpoint, apart from shards."""

TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
"""The errors of rename(2) if the new name of a directory is taken."""


class CheckpointDirectory(FileReader, CheckpointStorage[Path]):
    """The checkpoints in one directory.

    Raises:
        ConfigError, StorageFullError, StorageError: The directory cannot be created, read or written.
    """

    checks_files = True

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory.absolute()
        super().__init__(str(self.directory), keep)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in self.directory.glob(f"{TEMPORARY_PREFIX}*"):
                if not leftover.is_symlink():  # The target of a link is not ours.
                    self._clear(leftover)
            with TemporaryFile(dir=self.directory):
                pass
            self._listed()
        except OSError as error:
            kind = kind_of(error.errno)
            raise kind(
                f"the checkpoint directory {self.directory} cannot be used: {error.strerror}; {ADVICE[kind]}"
            ) from error

    def write(
        self,
        manifest: Manifest,
        encode: Callable[[Sink], object],
        check: Callable[[Path], object] = Path.exists,
        shards: Callable[[Path], tuple[Shard, ...]] = lambda _: (),
    ) -> Path:
        """Like `CheckpointStorage.write`. If the checkpoint cannot be written, no part of it is left.

        `shards` writes the tensors of a sharded state into the directory of the checkpoint. It is called first.
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
        """Renames a written checkpoint to its final name, adding a number if that name is taken."""
        for path in _names(self.directory / fresh.name):
            self._refuse_if_late(manifest)
            try:
                fresh.rename(path)
            except OSError as error:
                if error.errno not in TAKEN:
                    raise
            else:
                taken = self.directory / fresh.name
                if path.name != fresh.name and not self._is_of(taken, manifest.run):
                    warn(f"{taken} is there already: step {manifest.step} is saved as {path.name}")
                return path
        raise AssertionError("a directory does not have all names")

    @staticmethod
    def _is_of(checkpoint: Path, run: str) -> bool:
        """Whether this run has written this checkpoint."""
        with suppress(UnusableError):
            return read_manifest(checkpoint).run == run
        return False

    def _listed(self) -> list[Path]:
        return checkpoints_in(self.directory)

    def _check_written(self, checkpoint: Path) -> None:
        read_whole(checkpoint, afresh=True)

    def _remove(self, checkpoint: Path, manifest: Manifest) -> None:
        """Like `CheckpointStorage._remove`. Renames the checkpoint first."""
        with self.workspace() as workspace, suppress(FileNotFoundError):
            aside = workspace / checkpoint.name
            checkpoint.rename(aside)
            # Check only after the rename: no other writer can replace a checkpoint in the workspace.
            if self.sort_key(aside, unknown=NO_ATTEMPT)[0] > manifest.writer:
                aside.rename(checkpoint)
            else:
                (aside / MANIFEST).unlink()  # Otherwise `_clear` would restore the checkpoint.
        self._refuse_if_late(manifest)

    def _set_aside(self, checkpoint: Path) -> None:
        """Renames a broken checkpoint so that its name ends with `.broken`."""
        for aside in _names(checkpoint.with_name(f"{checkpoint.name}.broken")):
            try:
                checkpoint.rename(aside)
            except OSError as error:
                if error.errno not in TAKEN:
                    warn(f"the broken checkpoint {checkpoint} could not be set aside: {error.strerror}")
                    return
            else:
                warn(f"the broken checkpoint {checkpoint} is set aside as {aside.name}")
                return

    def _set_aside_before(self) -> list[Path]:
        return sorted((path for path in self.directory.iterdir() if BROKEN.fullmatch(path.name)), reverse=True)

    def _is_torn(self, aside: Path) -> bool:
        try:
            read_manifest(aside)
        except BrokenError:
            return all(path.name in OURS or SHARD.fullmatch(path.name) for path in aside.iterdir())
        except UnusableError:
            pass
        return False

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

    def _not_written(self, path: Path, needed: int, error: OSError) -> TrainerError:
        kind = kind_of(error.errno)
        room = f" (needed {needed} bytes, free {_free(self.directory)})" if kind is StorageFullError else ""
        return kind(
            f"checkpoint {path} could not be saved: {error.strerror}{room}; {ADVICE[kind]}."
            " The checkpoints before it are intact"
        )


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


def _names(path: Path) -> Iterator[Path]:
    """Yields the path, then the path with `-2`, `-3` and so on at its end, but skips those that exist."""
    for number in count(1):
        name = path if number == 1 else path.with_name(f"{path.name}-{number}")
        if not os.path.lexists(name):
            yield name
