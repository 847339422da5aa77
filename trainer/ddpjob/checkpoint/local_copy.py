"""The local copy: the newest checkpoint in the memory of rank 0's node, from which a restart in place resumes.

Rank 0 makes it while it writes the checkpoint to an object store, and its supervisor keeps it. It is valid only while
no later checkpoint can have been committed: before a commit, the former copy is invalidated.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from weakref import WeakSet

from ddpjob_rank.console import say, warn
from ddpjob_rank.environment import Env
from ddpjob_rank.machine import memory
from ddpjob_rank.manifests.manifest import MANIFEST_BYTES, Manifest, decoded, encoded
from ddpjob_rank.manifests.unusable import UnusableError
from ddpjob_rank.reporting import copy_handover

from ddpjob.group.shared_file import SharedFile

SHARE = 4
"""Copies may use the memory that is free when a copy is made, divided by this number. While a checkpoint is written,
there may be two copies: the former and the new one."""

FIELD = "spec.checkpoint.localCopySizeLimit"


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A copy whose size and checksum agree with its manifest."""

    location: str
    """The URL of the checkpoint."""
    manifest: Manifest
    state: SharedFile


class LocalCopies:
    """The copy of the newest checkpoint in one storage, and the copy that is being made."""

    def __init__(self, storage: str) -> None:
        """`storage` is the URL of the storage."""
        self._storage = storage
        self._held: SharedFile | None = None
        """The file with the manifest of the copy that the supervisor has."""
        self._held_bytes = 0
        self._new: SharedFile | None = None
        self._limit = 0
        """The largest number of bytes that both copies together may use."""
        self._told = False
        _ALL.add(self)

    def find(self) -> LocalCopy | None:
        """The copy that the supervisor has; None if there is none, or it must not be used."""
        answer = copy_handover.ask() if copy_handover.available() else None
        if answer is None:
            return None
        location, state, self._held = answer[0], SharedFile(answer[1]), SharedFile(answer[2])
        try:
            self._held_bytes = state.size
            described = next(self._held.portions(MANIFEST_BYTES), b"")
            if not described or location.rpartition("/")[0] != self._storage:
                return None
            manifest, checksum = decoded(described), sha256()
            for portion in state.portions():
                checksum.update(portion)
        except (OSError, UnusableError) as error:
            warn(f"the local copy of {location} is not used: {error}")
            return None
        if checksum.hexdigest() != manifest.sha256:
            warn(f"the local copy of {location} is not used: its checksum differs from its manifest's")
            return None
        return LocalCopy(location, manifest, state)

    def begin(self) -> None:
        """Begins to copy a state while it is written."""
        self._new, self._limit = None, self._limit_now()
        with suppress(OSError):
            self._new = SharedFile.in_memory() if copy_handover.available() else None

    def add(self, portion: memoryview) -> None:
        """Appends a portion of the state, unless the copy becomes too large."""
        if self._new is None:
            return
        if self._has_room(self._new.size + len(portion)):
            with suppress(OSError):
                self._new.write(portion)
                return
        self._new = None

    def invalidate(self) -> None:
        """Invalidates the former copy, because a newer checkpoint is committed now."""
        if self._held is not None:
            try:
                self._held.empty()
            except OSError:  # The file is not in memory. The supervisor can still drop the copy.
                copy_handover.drop()

    def keep(self, location: str, manifest: Manifest) -> None:
        """Hands the supervisor the copy that was begun, because the checkpoint is committed."""
        state, self._new = self._new, None
        if state is None:
            self._drop()
            return
        with suppress(OSError):  # The checkpoint is saved even if the copy fails.
            state.seal()
            described = SharedFile.in_memory()
            described.write(memoryview(encoded(manifest)))
            if copy_handover.keep(location, state.descriptor, described.descriptor):
                self._held, self._held_bytes = described, state.size

    def keep_read(self, location: str, manifest: Manifest, state: SharedFile) -> None:
        """Hands the supervisor the state of a committed checkpoint that was read into memory."""
        self._limit = self._limit_now(state.size)
        self._new = state if copy_handover.available() and self._has_room(state.size) else None
        self.keep(location, manifest)

    def _limit_now(self, made: int = 0) -> int:
        """The largest number of bytes that copies may use, if `made` bytes of a new copy are in memory already."""
        if (given := os.environ.get(Env.CHECKPOINT_LOCAL_COPY_BYTES, "")).isdecimal():
            return int(given)
        return (memory.free() + self._held_bytes + made) // SHARE

    def _has_room(self, size: int) -> bool:
        """Whether a new copy may have this size. Drops the former copy if there is room for only one."""
        if size <= self._limit:
            if size + self._held_bytes > self._limit:
                self._drop()
            return True
        given = Env.CHECKPOINT_LOCAL_COPY_BYTES in os.environ
        if not self._told and (self._limit or not given):
            self._told = True
            share = (
                f"the limit that {FIELD} sets"
                if given
                else f"a quarter of the free memory ({FIELD} sets another limit)"
            )
            say(
                f"no local copy of the checkpoint is kept: it needs more than {self._limit >> 20} MiB, {share}. A"
                " restart in place has to wait for the store"
            )
        return False

    def end(self) -> None:
        """Discards a copy that was begun, unless it was kept."""
        self._new = None

    def forget(self) -> None:
        """Closes the files in this process only."""
        for file in filter(None, (self._held, self._new)):
            file.close()
        self._held = self._new = None

    def _drop(self) -> None:
        if self._held is not None:
            self.invalidate()
            copy_handover.drop()
            self._held, self._held_bytes = None, 0


_ALL = WeakSet[LocalCopies]()


def _forget() -> None:
    """Keeps a forked child, such as a DataLoader worker, from holding a copy in memory for as long as it lives."""
    for copies in _ALL:
        copies.forget()


os.register_at_fork(after_in_child=_forget)
