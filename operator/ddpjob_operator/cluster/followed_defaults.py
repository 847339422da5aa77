"""Follows the ConfigMap with the organisation's defaults, and merges those for a namespace.

If the ConfigMap cannot be understood, the last version that could be stays in use. Jobs that have begun never depend
on it. A job that has not begun waits only if this process has never seen a version that it understands.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from ddpjob_operator.api import NO_DEFAULTS, BadInputError, Defaults
from ddpjob_operator.api.default_settings import DefaultsEntry
from ddpjob_operator.api.defaults import merged, read_defaults
from ddpjob_operator.api.words import listed
from ddpjob_operator.engine import Event

from .kube.api_client import CONFIG_MAPS, NAMESPACES, ApiClient, ApiError
from .kube.objects import ConfigMapObject, ObjectMeta
from .reflector import Reflector
from .serve.metrics import DEFAULTS_VALID
from .store import Cache, Key

DATA_KEY = "defaults.yaml"
"""The key of the ConfigMap that contains the list of entries."""
LABELS_KEPT_SECONDS = 5.0
"""How long the labels of a namespace are reused after they were read."""
REFUSED = "DefaultsRefused"
"""The reason of the event about a ConfigMap that cannot be understood."""
LONGEST_PROBLEM = 900
"""How much of a problem an event and a job's condition tell, in characters. The log tells all."""
FIRST_READ_SECONDS = 10.0
"""For how long rounds wait for the first read, so that no job says that it waits for the defaults meanwhile."""

logger = logging.getLogger(__name__)


class DefaultsUnknownError(Exception):
    """The defaults for a namespace are not known. The text says why, in a sentence."""


class FollowedDefaults:
    """The organisation's defaults, as they are now."""

    def __init__(
        self,
        api: ApiClient,
        where: Key | None,
        *,
        changed: Callable[[], None],
        record: Callable[[ObjectMeta, Event], None],
    ) -> None:
        """`where` is the ConfigMap's namespace and name; with None there are no defaults.

        `changed` is called when jobs that have not begun may get other defaults. `record` writes an event about the
        ConfigMap.
        """
        self._api = api
        self._where = where
        self._changed = changed
        self._record = record
        self._entries: tuple[DefaultsEntry, ...] | None = None if where else ()
        """The entries of the last version that could be understood; None if there was none."""
        self._read = asyncio.Event()
        self._labels: dict[str, tuple[float, dict[str, str]]] = {}
        self.problem = ""
        """Why the present version is not in use; empty if it is."""
        self._cache: Cache[ConfigMapObject, ConfigMapObject] = Cache(lambda seen: seen, lambda _: self._take())

    def __str__(self) -> str:
        return "The defaults (ConfigMap {}/{})".format(*self._where) if self._where else "The defaults"

    async def run(self) -> None:
        """Follows the ConfigMap, forever."""
        if self._where is None:
            await asyncio.Event().wait()
            return
        namespace, name = self._where
        fields = f"metadata.name={name}"
        reflector = Reflector(
            self._api,
            CONFIG_MAPS,
            namespace,
            self._cache,
            labels="",
            fields=fields,
            refused=self._note_refused,
            listed=self._note_listed,
        )
        await reflector.run()

    async def first_read(self) -> None:
        """Waits until the ConfigMap has been read once, but not for long."""
        if self._where is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._read.wait(), FIRST_READ_SECONDS)

    async def of(self, namespace: str) -> Defaults:
        """Returns the defaults for jobs of a namespace.

        Raises:
            DefaultsUnknownError: they are not known, until somebody changes something.
            ApiError: the namespace's labels cannot be read now.
        """
        if self._entries is None:
            raise DefaultsUnknownError(self.problem[:LONGEST_PROBLEM] or f"{self} have not been read yet")
        if not self._entries:
            return NO_DEFAULTS
        chooses = any(entry.namespace_selector for entry in self._entries)
        return merged(self._entries, await self._labels_of(namespace) if chooses else {})

    async def _labels_of(self, namespace: str) -> dict[str, str]:
        at, known = self._labels.get(namespace, (-LABELS_KEPT_SECONDS, {}))
        if time.monotonic() - at < LABELS_KEPT_SECONDS:
            return known
        try:
            found = await self._api.get(NAMESPACES, None, namespace)
        except ApiError as error:
            if error.passing:
                raise
            raise DefaultsUnknownError(
                f"Cannot read the labels of namespace {namespace}, which its defaults depend on: {error.message}"
            ) from error
        labels = dict(found.metadata.labels) if found else {}
        self._labels[namespace] = time.monotonic(), labels
        return labels

    def _note_listed(self) -> None:
        """Handles a list of the ConfigMap. If it is missing, or was forbidden, nothing else tells of it."""
        self._take()
        self._read.set()

    def _note_refused(self) -> None:
        self._set_problem(None, f"{self} cannot be read: the operator may not list and watch this ConfigMap")
        self._read.set()

    def _take(self) -> None:
        """Takes over the present version if it can be understood, and otherwise says why it cannot."""
        assert self._where, "nothing else is followed"
        seen, before = self._cache.get(self._where), self._entries
        try:
            self._entries, problem = self._understood(seen), ""
        except BadInputError as error:
            problem = str(error)
        self._set_problem(seen, problem, changed=self._entries != before)

    def _set_problem(self, seen: ConfigMapObject | None, problem: str, *, changed: bool = False) -> None:
        """Notes what is wrong with the present version, and reports it, and new entries, once."""
        changed, self.problem = changed or problem != self.problem, problem
        DEFAULTS_VALID.set(not problem)
        if changed:
            self._report(seen)
            self._changed()

    def _report(self, seen: ConfigMapObject | None) -> None:
        if not self.problem:
            logger.info("%s have these entries now: %s", self, listed([entry.name for entry in self._entries or ()]))
            return
        follows = "the last valid version stays in use" if self._entries is not None else "until then no job begins"
        logger.error("%s; %s", self.problem, follows)
        if seen is not None:
            message = f"{self.problem[:LONGEST_PROBLEM]}; {follows}"
            self._record(seen.metadata, Event(warning=True, reason=REFUSED, message=message))

    def _understood(self, seen: ConfigMapObject | None) -> tuple[DefaultsEntry, ...]:
        if seen is None:
            raise BadInputError(f"{self} do not exist: install the chart again, or create it")
        text = seen.data.get(DATA_KEY)
        if text is None:
            raise BadInputError(f"{self} have no key {DATA_KEY}")
        return read_defaults(text, str(self))
