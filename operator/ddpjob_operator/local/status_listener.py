"""Reads the status of rank 0's supervisor in a thread. Long polling makes changes arrive without delay."""

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

from ddpjob_operator.engine import (
    LARGEST_ANSWER,
    Asked,
    SupervisorReport,
    is_news,
    parse_report,
    with_read_error,
)
from ddpjob_operator.text.foreign_json import parsed_object

READ_SECONDS = 2
"""How long the supervisor may hold a request until its status changes. Without changes, this is the interval between
requests."""
SHORTEST_SECONDS = 0.05
"""The pause between an answer that contains a change and the next request."""
SLACK_SECONDS = 10.0
RETRIES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses, in seconds, after the first, second, … failed request in a row; the last pause is used for all others."""


@dataclass
class _Poller:
    """Requests the status of one pod again and again, until `stopped` is set."""

    job_uid: str
    asked: Asked
    changed: Callable[[], None]
    report: SupervisorReport | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Sends requests until `stopped` is set."""
        mark, failures = "", 0
        while not self.stopped.is_set():
            asked = time.monotonic()
            try:
                document, present = self._answer(mark)
                report = parse_report(document, datetime.now(UTC), uid=self.job_uid, pod=self.asked.pod)
                if report is None:
                    raise ValueError("its answer is not a status of this job")  # noqa: TRY301
            except (OSError, ValueError, http.client.HTTPException) as error:
                self._note(self._with_error(error))
                pause = RETRIES[min(failures, len(RETRIES) - 1)]
                failures += 1
            else:
                self._note(report)
                pause = SHORTEST_SECONDS if present != mark else asked + READ_SECONDS - time.monotonic()
                mark, failures = present, 0
            self.stopped.wait(max(0.0, pause))

    def _answer(self, mark: str) -> tuple[object, str]:
        """The status document and its ETag.

        `mark` is the last ETag, or empty. If `mark` is not empty, the supervisor answers as soon as the document has
        changed, and at the latest after READ_SECONDS.
        """
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
            content = _read(answer, asked_at + READ_SECONDS + SLACK_SECONDS)
            return parsed_object(content), answer.headers.get("ETag", "")
        finally:
            connection.close()

    def _with_error(self, error: Exception) -> SupervisorReport:
        why = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        message = f"rank 0's supervisor at {self.asked.address}:{self.asked.port} gives no status: {why}"
        return with_read_error(self.report, message, datetime.now(UTC), pod=self.asked.pod)

    def _note(self, report: SupervisorReport) -> None:
        """Stores a status, and calls `changed` if it contains a change that matters."""
        known, self.report = self.report, report
        if not self.stopped.is_set() and is_news(known, report):
            self.changed()


def _read(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """Reads the body of an answer.

    Raises:
        ValueError: the body is longer than LARGEST_ANSWER, so it is not from a supervisor.
        TimeoutError: the body has not arrived by `deadline`, which is a time of time.monotonic().
    """
    content = b""
    while part := answer.read1():
        content += part
        if len(content) > LARGEST_ANSWER:
            raise ValueError(f"its answer is larger than {LARGEST_ANSWER // 1024} KiB")
        if time.monotonic() > deadline:
            raise TimeoutError("its answer takes too long")
    return content


class StatusListener:
    """Follows the status of rank 0's supervisor. Calls `changed` from another thread when the status has changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._poller: _Poller | None = None

    @property
    def report(self) -> SupervisorReport | None:
        """The last status, or the error if it could not be read; None before the first answer."""
        return self._poller.report if self._poller is not None else None

    def attend(self, job_uid: str, asked: Asked | None) -> SupervisorReport | None:
        """From now on follows the supervisor `asked`, or none if it is None. Returns the last status."""
        poller = self._poller
        if poller is not None and asked != poller.asked:
            poller.stopped.set()
        if asked is not None and (poller is None or asked != poller.asked or poller.stopped.is_set()):
            poller = self._poller = _Poller(job_uid, asked, self._changed)
            threading.Thread(target=poller.run, daemon=True, name="status listener").start()
        return self.report
