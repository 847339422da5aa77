"""Listens to the supervisor of a run's rank 0, in a thread: what it says comes as soon as it has news."""

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

from ddpjob_operator.engine import LARGEST_ANSWER, Asked, Heard, document_of, heard_of, is_news, unheard

READ_SECONDS = 2
"""How often a supervisor without news is heard."""
SHORTEST_SECONDS = 0.05
"""And never more often than this, whatever the news."""
SLACK_SECONDS = 10.0
RETRIES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between unanswered questions; the last one repeats."""


@dataclass
class _Poller:
    """Asks one pod until it is told to stop."""

    job_uid: str
    asked: Asked
    changed: Callable[[], None]
    heard: Heard | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Asks again and again."""
        mark, failures = "", 0
        while not self.stopped.is_set():
            asked = time.monotonic()
            try:
                document, present = self._answer(mark)
                heard = heard_of(document, datetime.now(UTC), uid=self.job_uid, pod=self.asked.pod)
                if heard is None:
                    raise ValueError("its answer is not a status of this job")  # noqa: TRY301
            except (OSError, ValueError, http.client.HTTPException) as error:
                self._note(self._unheard(error))
                pause = RETRIES[min(failures, len(RETRIES) - 1)]
                failures += 1
            else:
                self._note(heard)
                pause = SHORTEST_SECONDS if present != mark else asked + READ_SECONDS - time.monotonic()
                mark, failures = present, 0
            self.stopped.wait(max(0.0, pause))

    def _answer(self, mark: str) -> tuple[object, str]:
        """The document and its mark; with the last mark it comes as soon as there is news, or else a little later."""
        connection = http.client.HTTPConnection(
            self.asked.address, self.asked.port, timeout=READ_SECONDS + SLACK_SECONDS
        )
        headers = {"If-None-Match": mark, "Prefer": f"wait={READ_SECONDS}"} if mark else {}
        asked_at = time.monotonic()
        try:
            connection.request("GET", "/status", headers=headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise ValueError(f"it answers with HTTP status {answer.status}")
            return document_of(_read(answer, asked_at + READ_SECONDS + SLACK_SECONDS)), answer.headers.get("ETag", "")
        finally:
            connection.close()

    def _unheard(self, error: Exception) -> Heard:
        why = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        said = f"rank 0's supervisor at {self.asked.address}:{self.asked.port} gives no status: {why}"
        return unheard(self.heard, said, datetime.now(UTC), pod=self.asked.pod)

    def _note(self, heard: Heard) -> None:
        """Takes note of what was heard; only news is worth a look at the job."""
        known, self.heard = self.heard, heard
        if not self.stopped.is_set() and is_news(known, heard):
            self.changed()


def _read(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, unless it is longer than any that a supervisor sends, or takes too long to arrive."""
    content = b""
    while part := answer.read1():
        content += part
        if len(content) > LARGEST_ANSWER:
            raise ValueError(f"its answer is larger than {LARGEST_ANSWER // 1024} KiB")
        if time.monotonic() > deadline:
            raise TimeoutError("its answer takes too long")
    return content


class StatusListener:
    """What is heard of one run. `changed` is called, from another thread, when there is something new."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._poller: _Poller | None = None

    @property
    def heard(self) -> Heard | None:
        """What was heard last."""
        return self._poller.heard if self._poller is not None else None

    def attend(self, job_uid: str, asked: Asked | None) -> Heard | None:
        """What was heard of the run; from now on only this supervisor is listened to."""
        poller = self._poller
        if poller is not None and asked != poller.asked:
            poller.stopped.set()
        if asked is not None and (poller is None or asked != poller.asked or poller.stopped.is_set()):
            poller = self._poller = _Poller(job_uid, asked, self._changed)
            threading.Thread(target=poller.run, daemon=True, name="status listener").start()
        return self.heard
