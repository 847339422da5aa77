"""Reads each job's status from rank 0's supervisor: important news immediately, progress every ten seconds.

The requests are long polls: the supervisor answers when it has news, or after a wait. The number of open requests is
limited. If there are more jobs than that, each request waits for a shorter time, so that each job is still read just
as often.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from ddpjob_operator.engine import Asked, SupervisorReport, is_news, parse_report, with_read_error

from .serve.log import about
from .serve.metrics import STATUS_READS
from .status_client import NoReportError, ask, new_session, where
from .store import Key
from .workqueue import WorkQueue

OPEN_QUESTIONS = 256
"""How many requests to supervisors may be open at the same time."""
READ_SECONDS = 10.0
"""The interval between two reads of a supervisor without news."""
LONGEST_RETRY_SECONDS = 10.0
"""The longest interval between two requests to a supervisor that does not answer. The first retries come after 1, 2,
4 and 8 s."""
LONGEST_HOPELESS_SECONDS = 60.0
"""The longest interval between two requests to a pod that probably has no supervisor: the pod has never reported an
attempt, and either nothing listens on the port, or HOPELESS requests have failed."""
HOPELESS = 20
"""After this many failed requests (some minutes), a pod that has never reported is assumed to have no supervisor."""
NEWS_BURST = 20
"""How many reports with news are read from a supervisor without a pause."""
NEWS_SECONDS = 2.0
"""The interval at which further reports with news are read, so that no pod can keep the operator busy."""

logger = logging.getLogger(__name__)


def _now() -> float:
    """Returns the event loop's time in seconds."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Supervisor:
    """A pod's supervisor: its last report, and the state that determines when to read it again."""

    job_uid: str
    asked: Asked
    report: SupervisorReport | None = None
    mark: str = ""
    failures: int = 0
    refused: bool = False
    """Whether the last connection was refused, because nothing was listening."""
    news_left: float = NEWS_BURST
    news_at: float = field(default_factory=_now)
    task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stops reading this supervisor."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def pause_after_news(self) -> float:
        """Returns the seconds until the next request, which are 0 as long as there is little news."""
        now = _now()
        self.news_left = min(NEWS_BURST, self.news_left + (now - self.news_at) / NEWS_SECONDS) - 1
        self.news_at = now
        return max(0.0, -self.news_left * NEWS_SECONDS)

    def pause_after_failure(self) -> float:
        """Returns the seconds until the next request, which grow with each failure."""
        never = self.report is None or not self.report.attempt
        hopeless = never and (self.refused or self.failures >= HOPELESS)
        longest = LONGEST_HOPELESS_SECONDS if hopeless else LONGEST_RETRY_SECONDS
        self.failures += 1
        return float(min(2 ** min(self.failures - 1, 10), longest))


class Supervisors:
    """Reads supervisors in the background, at most one for each job. News in a report requests a round of the job."""

    def __init__(self, queue: WorkQueue, time: Callable[[], datetime]) -> None:
        self._queue = queue
        self._time = time
        self._supervisors: dict[Key, _Supervisor] = {}
        self._turns = asyncio.Semaphore(OPEN_QUESTIONS)
        self._session = new_session()

    def report(self, key: Key, job_uid: str) -> SupervisorReport | None:
        """Returns the last report about a job; None if there is none."""
        supervisor = self._supervisors.get(key)
        return supervisor.report if supervisor is not None and supervisor.job_uid == job_uid else None

    def asked(self, key: Key, job_uid: str) -> Asked | None:
        """Returns the supervisor that is being read for a job; None if none is."""
        supervisor = self._supervisors.get(key)
        if supervisor is None or supervisor.job_uid != job_uid or supervisor.task is None:
            return None
        return supervisor.asked

    def attend(self, key: Key, job_uid: str, asked: Asked | None) -> SupervisorReport | None:
        """Polls the supervisor `asked`, and no other one, for a job's reports from now on; returns the last report.

        If `asked` is None, polling stops, but the last report is kept.
        """
        supervisor = self._supervisors.get(key)
        if supervisor is not None and (supervisor.job_uid != job_uid or asked not in {None, supervisor.asked}):
            self.forget(key)
            supervisor = None
        if asked is None:
            if supervisor is not None:
                supervisor.stop()
            return supervisor.report if supervisor is not None else None
        if supervisor is None:
            supervisor = self._supervisors[key] = _Supervisor(job_uid, asked)
        if supervisor.task is None:
            supervisor.task = asyncio.create_task(
                self._keep_asking(key, supervisor), name=f"supervisor of {asked.pod}"
            )
        return supervisor.report

    def forget(self, key: Key) -> None:
        """Stops reading a job's supervisor, and drops its report."""
        supervisor = self._supervisors.pop(key, None)
        if supervisor is not None:
            supervisor.stop()

    async def close(self) -> None:
        """Stops reading all supervisors."""
        tasks = [supervisor.task for supervisor in self._supervisors.values() if supervisor.task is not None]
        for key in list(self._supervisors):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    async def _keep_asking(self, key: Key, supervisor: _Supervisor) -> None:
        while True:
            pause = LONGEST_RETRY_SECONDS
            try:
                pause = await self._ask_once(key, supervisor)
            except Exception:
                STATUS_READS.labels("bug").inc()
                logger.exception("this is a bug; trying again in %.0f s", pause, extra=about(key, supervisor.job_uid))
            await asyncio.sleep(pause)

    async def _ask_once(self, key: Key, supervisor: _Supervisor) -> float:
        """Sends one request. Returns the seconds until the next request."""
        began = _now()
        pod = supervisor.asked.pod
        async with self._turns:
            wait = READ_SECONDS * min(1.0, OPEN_QUESTIONS / len(self._supervisors))
            try:
                answer = await ask(self._session, supervisor.asked, supervisor.mark, wait)
                report = parse_report(
                    answer.document, self._time(), uid=supervisor.job_uid, pod=pod, last=supervisor.report
                )
                if report is None:
                    raise NoReportError("unreadable", f"{where(supervisor.asked)} returned the status of another job")  # noqa: TRY301
            except NoReportError as error:
                STATUS_READS.labels(error.result).inc()
                supervisor.refused = error.result == "refused"
                supervisor.mark = ""  # With no mark, the next answer comes immediately, without waiting for news.
                self._note(key, supervisor, with_read_error(supervisor.report, str(error), self._time(), pod=pod))
                return supervisor.pause_after_failure()
        STATUS_READS.labels("ok").inc()
        news = answer.mark != supervisor.mark
        supervisor.mark, supervisor.failures, supervisor.refused = answer.mark, 0, False
        self._note(key, supervisor, report)
        return supervisor.pause_after_news() if news else max(0.0, began + READ_SECONDS - _now())

    def _note(self, key: Key, supervisor: _Supervisor, report: SupervisorReport) -> None:
        """Stores a report. Requests a round of the job only if the report contains news."""
        known, supervisor.report = supervisor.report, report
        if is_news(known, report):
            self._queue.mark(key)
