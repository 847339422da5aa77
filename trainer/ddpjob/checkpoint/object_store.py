"""Checkpoints in an object store: S3, Google Cloud Storage, Azure Blob Storage, and servers with their protocols.

    step-00000120-4839/begun.json       the description of a checkpoint that somebody has begun to write
    step-00000120-4839/state.pt         the state
    step-00000120-4839/manifest.json    the whole description; written last
    step-00000120-4839.broken           marks a broken checkpoint that was set aside
    .ddpjob-probe                       shows that the store refuses to create an object twice

An object store has no rename and no locks, but can refuse to write an object that exists. So each save has a name of
its own, with a random number, and no object is ever written twice. The creator of `manifest.json` decides what
happens to a checkpoint. If that is the writer, the checkpoint is thereby committed. If it is a later run, which has
found the checkpoint unfinished, it writes a description without a checksum: then the writer, if it is still running,
can no longer commit, and its objects can be removed.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import obstore
from ddpjob_rank.console import counted, say, warn
from ddpjob_rank.errors import (
    CheckpointMissedError,
    ConfigError,
    StorageUnavailableError,
    TrainerError,
)
from ddpjob_rank.manifests.manifest import MANIFEST, MANIFEST_BYTES, NAME, Manifest, Writer, decoded, encoded
from ddpjob_rank.manifests.unusable import BrokenError, ForeignError, NewerError, UnavailableError, UnusableError
from ddpjob_rank.reporting.copy_handover import available
from obstore.exceptions import AlreadyExistsError, NotSupportedError

from ddpjob.group.shared_file import SharedFile

from .checkpoint_storage import CheckpointStorage, named
from .content import Measured, Sink
from .local_copy import LocalCopies
from .reading import BROKEN, PATIENCE_SECONDS, STATE, Decode, Decoded, Found
from .store_client import ERRORS, StoreError, asking, opened

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import ObjectStore as Store

BEGUN = "begun.json"
PROBE = ".ddpjob-probe"

PART_BYTES = 16 * 1024 * 1024
"""Bytes per request when a state is uploaded or downloaded. S3 allows 10,000 parts, so a state may have 160 GB."""
PARTS_AT_ONCE = 4
COPY_BYTES = 1024 * 1024
"""Bytes to copy at a time: during each copy, the training thread waits for the GIL."""
COMMIT_TRIES = 3
"""How many times to try to create an object if the answer is lost."""
PAUSE_SECONDS = 1.0

REMEDY = "check the name and the credentials, which must permit listing, reading, writing and deleting objects there"


class ObjectStore(CheckpointStorage[str]):
    """The checkpoints below one URL. A checkpoint is named by its own URL.

    Raises:
        ConfigError: The URL is wrong, or the store lacks something, such as a right, the bucket, or writes that
            cannot overwrite.
        StorageUnavailableError: The store does not answer.
    """

    checks_files = False

    def __init__(self, url: str, keep: int, store: "Store | None" = None, *, read_only: bool = False) -> None:
        """Tries the requests that will be needed.

        Args:
            url: The URL, which is valid.
            keep: How many checkpoints stay.
            store: The store to use, such as one in memory; by default the one that `url` names.
            read_only: Whether nothing will be written.
        """
        super().__init__(url.rstrip("/"), keep)
        self._store = store or opened(url)
        self._known: dict[str, Manifest] = {}
        """The manifests that were read. No object is written twice, so they stay as they are."""
        self._copies = LocalCopies(self.address)
        self._copy = None if read_only else self._copies.find()
        self._resumed: Writer | None = None
        """Who wrote the local copy that this run has resumed from; None if it has not resumed from a local copy."""
        if self._copy is None:
            self._check_usable(read_only=read_only)

    def listed(self) -> list[str]:
        """All checkpoints, whether they are valid or not, but not those that were set aside."""
        return self._listed()

    def manifest(self, checkpoint: str) -> Manifest:
        """Like `Reader.manifest`. It has no checksum if the checkpoint was given up."""
        if checkpoint not in self._known:
            self._known[checkpoint] = self._read_manifest(checkpoint, MANIFEST)
        return self._known[checkpoint]

    def whole(self, checkpoint: str) -> tuple[Manifest, SharedFile]:
        """Like `Reader.whole`. The content is downloaded into memory."""
        manifest, key = self.manifest(checkpoint), self._key(checkpoint, STATE)
        if manifest.shards:
            raise NewerError("its state is divided among files, which can be read only from a directory")
        self._check_size(checkpoint, manifest)
        content, checksum = SharedFile.in_memory(), sha256()
        at_once = PART_BYTES * PARTS_AT_ONCE
        for first in range(0, manifest.size, at_once):
            starts = range(first, min(first + at_once, manifest.size), PART_BYTES)
            ends = [min(start + PART_BYTES, manifest.size) for start in starts]
            try:
                with asking(f"{checkpoint}/{STATE} cannot be read", FileNotFoundError):
                    parts = obstore.get_ranges(self._store, key, starts=list(starts), ends=ends, coalesce=0)
            except FileNotFoundError:
                raise BrokenError(f"it has no {STATE}") from None
            for part in parts:
                content.write(memoryview(part))
                checksum.update(part)
        if checksum.hexdigest() != manifest.sha256:
            raise BrokenError(f"the checksum of {STATE} differs from its manifest's")
        return manifest, content

    def identity(self, checkpoint: str) -> str | None:
        """Its URL, because a checkpoint is never replaced."""
        with asking(f"{checkpoint} cannot be listed"):
            found = obstore.list_with_delimiter(self._store, self._key(checkpoint))
        return checkpoint if found["objects"] or found["common_prefixes"] else None

    def given_up(self, error: UnavailableError) -> tuple[type[TrainerError], str]:
        """Like `Reader.given_up`."""
        if isinstance(error, StoreError) and error.lasting:
            return ConfigError, REMEDY
        return StorageUnavailableError, "check that this machine can reach the store"

    def newest(
        self, decode: Decode[Decoded], *, start_over: bool = False, retry_seconds: float = PATIENCE_SECONDS
    ) -> Found[Decoded] | None:
        """Like `CheckpointStorage.newest`. If there is a local copy, the store is not asked."""
        if found := self._from_copy(decode):
            return found
        with self._needed():
            found = super().newest(decode, start_over=start_over, retry_seconds=retry_seconds)
            if found and available() and self._newest_writer() <= found.manifest.writer:
                self._copies.keep_read(found.location, found.manifest, found.content)
        return found

    def newest_attempt(self) -> int:
        """Like `CheckpointStorage.newest_attempt`.

        Raises:
            StorageUnavailableError: The store does not answer.
        """
        if self._resumed:
            return self._resumed[0]
        with self._needed():
            return super().newest_attempt()

    def tidy(self, manifest: Manifest, newest: str) -> None:
        """Like `CheckpointStorage.tidy`. Removes unfinished checkpoints of earlier runs, too.

        After a resumption from a local copy, the first save does this instead.
        """
        if self._resumed:
            return
        try:
            super().tidy(manifest, newest)
            self._remove_unfinished(manifest)
        except StoreError as error:
            warn(f"old checkpoints are not removed now: {error}")

    def write(
        self, manifest: Manifest, encode: Callable[[Sink], object], check: Callable[[Path], object] = Path.exists
    ) -> str:
        """Like `CheckpointStorage.write`, but does not call `check`.

        Raises:
            CheckpointMissedError: The store did not take the checkpoint. The next one may succeed.
            SupersededError: A later attempt or run has written to this store, and takes over.
        """
        del check
        checkpoint = f"{self.address}/step-{manifest.step:08}-{secrets.randbelow(10**12)}"
        try:
            self._refuse_if_late(manifest)
            self._remove_unfinished(manifest)
            self._create(self._key(checkpoint, BEGUN), encoded(manifest))
            try:
                self._copies.begin()
                content = Upload(self._store, self._copies.add)
                content.fill(self._key(checkpoint, STATE), encode, checkpoint)
                self._refuse_if_late(manifest)
                self._commit(checkpoint, _completed(manifest, content))
            except UnavailableError:
                # Removing the checkpoint would need a request, too. The next save removes what this one leaves
                # behind.
                raise
            except Exception:
                with suppress(UnusableError):
                    self._give_up(checkpoint, manifest)
                raise
            finally:
                self._copies.end()
        except UnavailableError as error:
            raise CheckpointMissedError(
                f"checkpoint {checkpoint} could not be saved: {error}. The checkpoints before it are intact"
            ) from error
        try:
            self._prune(checkpoint, manifest)
        except StoreError as error:
            warn(f"old checkpoints are not removed now: {error}")
        return checkpoint

    def _commit(self, checkpoint: str, manifest: Manifest) -> None:
        self._copies.invalidate()
        if not self._create(self._key(checkpoint, MANIFEST), encoded(manifest)):
            with suppress(UnusableError):
                later = self._read_manifest(checkpoint, MANIFEST)
                raise self._superseded(
                    manifest, f"{named(later.writer)} has removed the checkpoint that this run was writing"
                )
            raise self._superseded(manifest, f"{checkpoint}/{MANIFEST} exists already")
        self._known[checkpoint] = manifest
        self._copies.keep(checkpoint, manifest)

    def _from_copy(self, decode: Decode[Decoded]) -> Found[Decoded] | None:
        """The checkpoint in the local copy; None if there is no copy, or it cannot be decoded."""
        copy, self._copy = self._copy, None
        if copy is None:
            return None
        try:
            found = Found(copy.location, copy.manifest, copy.state, decode(copy.state.path))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is: the store has the checkpoint, too)
            warn(f"the local copy of {copy.location} is not used: {error}")
            self._check_usable(read_only=False)
            return None
        say(f"step {copy.manifest.step} is restored from the local copy in this node's memory, without the store")
        self._resumed = copy.manifest.writer
        return found

    def _is_late(self, manifest: Manifest, newest: tuple[float, str]) -> bool:
        """Like `CheckpointStorage._is_late`. Once resumed from a local copy, any other later writer counts."""
        if self._resumed:
            return newest > self._resumed and newest != manifest.writer
        return super()._is_late(manifest, newest)

    def _give_up(self, checkpoint: str, manifest: Manifest) -> None:
        """Removes an unfinished checkpoint, unless its writer commits it first.

        A description without a checksum stays.

        `manifest` is the manifest of the run that gives it up.
        """
        empty = encoded(replace(manifest, savedAt="", size=0, sha256=""))
        if self._create(self._key(checkpoint, MANIFEST), empty) or not self.manifest(checkpoint).sha256:
            self._delete(checkpoint, STATE, BEGUN)

    def _remove_unfinished(self, manifest: Manifest) -> None:
        """Gives up the unfinished checkpoints of this and earlier runs. Keeps only a few of their descriptions."""
        given_up = []
        for checkpoint in self._entries():
            with suppress(UnusableError):
                unfinished = self._unfinished(checkpoint)
                if not unfinished or not manifest.continues(unfinished) or unfinished.writer > manifest.writer:
                    continue
                if checkpoint in self._known:
                    given_up.append((unfinished.order, checkpoint))
                else:
                    self._give_up(checkpoint, manifest)
        for _, checkpoint in sorted(given_up)[: -self._keep]:
            self._delete(checkpoint, STATE, BEGUN, MANIFEST)

    def _unfinished(self, checkpoint: str) -> Manifest | None:
        """The description of a checkpoint that was begun or given up; None if it was neither."""
        try:
            known = self.manifest(checkpoint)
        except ForeignError:
            with suppress(ForeignError, BrokenError):
                return self._read_manifest(checkpoint, BEGUN)
        except UnusableError:
            pass
        else:
            return None if known.sha256 else known
        return None

    def _listed(self) -> list[str]:
        return [checkpoint for checkpoint in self._entries() if not self._unfinished(checkpoint)]

    def _entries(self) -> list[str]:
        """All checkpoints, finished or not, that were not set aside."""
        names, aside = self._names()
        entries = [f"{self.address}/{name}" for name in sorted(names - aside)]
        self._known = {entry: self._known[entry] for entry in entries if entry in self._known}
        return entries

    def _names(self) -> tuple[set[str], set[str]]:
        """The names of all checkpoints, and of those that were set aside."""
        with asking(f"{self.address} cannot be listed"):
            found = obstore.list_with_delimiter(self._store)
        names = {Path(prefix).name for prefix in found["common_prefixes"]}
        marks = {Path(item["path"]).name for item in found["objects"]}
        return (
            {name for name in names if NAME.fullmatch(name)},
            {mark.removesuffix(".broken") for mark in marks if BROKEN.fullmatch(mark)},
        )

    def _read_manifest(self, checkpoint: str, name: str) -> Manifest:
        try:
            with asking(f"{checkpoint}/{name} cannot be read", FileNotFoundError):
                found = obstore.get(self._store, self._key(checkpoint, name))
                written = bytes(found.bytes()) if found.meta["size"] <= MANIFEST_BYTES else None
        except FileNotFoundError:
            raise ForeignError(f"it has no {name}") from None
        if written is None:
            raise ForeignError(f"{name} has more than {MANIFEST_BYTES} bytes")
        return decoded(written)

    def _check_written(self, checkpoint: str) -> None:
        # Check only the size: the store has checked the parts as they came in, and reading 10 GB back after each save
        # would cost a minute and money. The checksum is compared when a run resumes.
        self._check_size(checkpoint, self.manifest(checkpoint))

    def _check_size(self, checkpoint: str, manifest: Manifest) -> None:
        try:
            with asking(f"{checkpoint}/{STATE} cannot be read", FileNotFoundError):
                size = obstore.head(self._store, self._key(checkpoint, STATE))["size"]
        except FileNotFoundError:
            raise BrokenError(f"it has no {STATE}") from None
        if size != manifest.size:
            raise BrokenError(f"{STATE} has {counted(size, 'byte')}, its manifest says {manifest.size}")

    def _set_aside(self, checkpoint: str) -> None:
        try:
            self._create(f"{self._key(checkpoint)}.broken", b"")
        except StoreError as error:
            warn(f"the broken checkpoint {checkpoint} could not be set aside: {error}")
        else:
            warn(f"the broken checkpoint {checkpoint} is set aside: it is marked by {checkpoint}.broken")

    def _set_aside_before(self) -> list[str]:
        _, aside = self._names()
        return sorted((f"{self.address}/{name}" for name in aside), reverse=True)

    def _is_torn(self, aside: str) -> bool:
        try:
            self.manifest(aside)
        except BrokenError:
            with asking(f"{aside} cannot be listed"):
                found = obstore.list_with_delimiter(self._store, self._key(aside))
            return {Path(item["path"]).name for item in found["objects"]} <= {MANIFEST, STATE, BEGUN}
        except UnusableError:
            pass
        return False

    def _remove(self, checkpoint: str, manifest: Manifest) -> None:
        """Like `CheckpointStorage._remove`. Its URL is never used again."""
        del manifest
        _, aside = self._names()
        try:
            if self._key(checkpoint) in aside:
                # Even without its mark, what is left must be a broken checkpoint, which can be set aside again.
                self._delete(checkpoint, STATE, BEGUN)
                self._delete_object(f"{self._key(checkpoint)}.broken")
                self._delete(checkpoint, MANIFEST)
            else:
                self._delete(checkpoint, MANIFEST, STATE, BEGUN)
        except StoreError as error:
            warn(f"the old checkpoint {checkpoint} could not be removed: {error}")

    def _create(self, key: str, content: bytes) -> bool:
        """Creates an object, whose content must be unique. Returns False if another object is there.

        If the answer is lost, the object may have been created nevertheless: then it has this content.
        """
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                with asking(f"{self.address}/{key} cannot be written", AlreadyExistsError):
                    obstore.put(self._store, key, content, mode="create")
            except AlreadyExistsError:
                with asking(f"{self.address}/{key} cannot be read"):
                    return bytes(obstore.get(self._store, key).bytes()) == content
            except StoreError as error:
                if not error.lost or not tries_left:
                    raise
                sleep(PAUSE_SECONDS)
            else:
                return True
        raise AssertionError("the last try returns or raises")

    def _delete(self, checkpoint: str, *names: str) -> None:
        """Deletes objects of a checkpoint, in this order, if they exist."""
        for name in names:
            self._delete_object(self._key(checkpoint, name))

    def _delete_object(self, key: str) -> None:
        with suppress(FileNotFoundError), asking(f"{self.address}/{key} cannot be deleted", FileNotFoundError):
            obstore.delete(self._store, key)

    def _key(self, checkpoint: str, name: str | None = None) -> str:
        key = checkpoint.removeprefix(f"{self.address}/")
        return f"{key}/{name}" if name else key

    def _check_usable(self, *, read_only: bool) -> None:
        """Lists the store and, unless it is only read, probes it.

        Raises:
            ConfigError, StorageUnavailableError: As for the class.
        """
        try:
            self._names()
            if not read_only:
                self._probe()
        except StoreError as error:
            kind, remedy = self.given_up(error)
            raise kind(f"{error}; {remedy}") from error

    def _probe(self) -> None:
        """Tries the requests that saves will need. The object that it creates stays for later probes.

        Raises:
            StoreError: The store refuses something, or does not answer.
            ConfigError: The store lets an object be created that exists already.
        """
        try:
            overwrites = all(self._create(PROBE, secrets.token_bytes(16)) for _ in range(2))
        except StoreError as error:
            overwrites = isinstance(error.__context__, NotSupportedError)
            if not overwrites:
                raise
        if overwrites:
            raise ConfigError(
                f"{self.address} cannot be used: its server does not refuse to create an object twice"
                " (If-None-Match: *), so two runs could write over each other's checkpoints"
            )

    @contextmanager
    def _needed(self) -> Iterator[None]:
        """The context of requests without which training cannot begin."""
        try:
            yield
        except StoreError as error:
            kind, remedy = self.given_up(error)
            raise kind(f"{error}. Training does not start over: {remedy}") from error


class Upload(Measured):
    """The content of an object while it is uploaded, in parts. Only a few parts are in memory."""

    ERRORS = (StoreError,)

    def __init__(self, store: "Store", copy: Callable[[memoryview], object]) -> None:
        """`copy` is called with each portion, too."""
        super().__init__()
        self._store, self._copy = store, copy
        self._what = ""
        self._file: WritableFile

    def fill(self, key: str, encode: Callable[[Sink], object], checkpoint: str) -> None:
        """Has `encode` write the object's content. If no error is raised, the object exists afterwards.

        Raises:
            StoreError: The store did not take the content of `checkpoint`.
        """
        self._what = f"{checkpoint}/{STATE} cannot be written"
        self._file = obstore.open_writer(self._store, key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        try:
            self._encode(encode)
        except BaseException as error:
            with suppress(*ERRORS):
                self._file.__exit__(type(error), error, None)  # Gives up the upload.
            raise
        with asking(self._what):
            self._file.close()

    def _append(self, portion: memoryview) -> None:
        with asking(self._what):
            for start in range(0, len(portion), COPY_BYTES):
                # A copy, because obstore keeps the bytes until they are uploaded, and torch reuses its memory before
                # that.
                self._file.write(bytes(portion[start : start + COPY_BYTES]))
        self._copy(portion)


def _completed(manifest: Manifest, content: Upload) -> Manifest:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return replace(manifest, savedAt=now, size=content.size, sha256=content.sha256)
