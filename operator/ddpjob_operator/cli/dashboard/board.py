"""What the pages of `ddpjob dashboard` ask for, from the feeds that `ddpjob top` shows too. Its methods may block."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

import yaml

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.top.actions import ACTS, Act, carried_out, command_of, makes_sense, refusal
from ddpjob_operator.cli.top.feeds import Feed, all_rows
from ddpjob_operator.client import ClusterError, when
from ddpjob_operator.text import one_line, visible
from ddpjob_operator.view_model import JobKey, JobRow, Mask, Origin, without_secrets

from .documents import Document, detail_document, id_of, row_document

LOGS = ("logs", "{name}", "--follow", "--tail", "2000")
OF_ATTEMPT = ("--attempt", "{given}")
OF_A_HISTORY = ("history", "reader-image", "context", "kubeconfig")
"""The flags with which a history is read; all but the first are only given if it is on a volume claim."""
MOST_EVENTS = 1000
ACTIONS = {act.there[0]: act for act in ACTS if not act.watched}
"""What a page can do to a job, by name."""
TROUBLE = (BadInputError, ClusterError, OSError)


class Board:
    """The jobs of some feeds."""

    def __init__(self, feeds: Sequence[Feed], arguments: argparse.Namespace) -> None:
        self._feeds, self._arguments = feeds, arguments
        self._keys: dict[str, JobKey] = {}
        self.version = 0
        """Rises whenever a feed says that a job has changed."""

    def follow(self) -> None:
        """Begins to follow the feeds."""
        for feed in self._feeds:
            feed.follow(self._change)

    def _change(self) -> None:
        self.version += 1

    def stop(self) -> None:
        """Ends that."""
        for feed in self._feeds:
            feed.stop()

    def jobs(self) -> Document:
        """A row for each job, by its id, and under `problems` why some jobs cannot be read."""
        problems = [feed.problem for feed in self._feeds if feed.problem]
        try:
            rows = all_rows(self._feeds, datetime.now(UTC))
        except TROUBLE as error:
            return {"problems": [*problems, one_line(str(error))]}
        self._keys = {id_of(row.key): row.key for row in rows}
        return {"problems": problems} | {id_of(row.key): row_document(row) for row in rows}

    def details(self, ids: Sequence[str]) -> Document:
        """The parts of jobs, each under `ID PART`. A job that cannot be read has only the part `problem`."""
        return {f"{one} {part}": value for one in ids for part, value in self._detail(one).items()}

    def _detail(self, job_id: str) -> Document:
        try:
            key, feed = self._found(job_id)
            mask, detail = self._mask(feed.job(key)), feed.detail(key, datetime.now(UTC))
        except TROUBLE as error:
            return {"problem": visible(str(error))}
        if detail is None:
            return {"problem": "The job is gone."}
        return {**detail_document(detail, mask.script), "acts": self._acts(key, detail.row)}

    def _acts(self, key: JobKey, row: JobRow) -> list[Document]:
        """What can be done to a job in its state."""
        return [
            {"name": name, "label": name.capitalize(), "asks": act.asks, "warns": act.warns}
            for name, act in ACTIONS.items()
            if makes_sense(act, row) and command_of(act, key, self._arguments)
        ]

    @staticmethod
    def _mask(job: DDPJob | None) -> Mask:
        """A mask that knows the job's own secrets."""
        mask = Mask()
        if job is not None:
            mask.job(job)
        return mask

    def text(self, job_id: str) -> str:
        """The job as YAML, without secrets.

        Raises:
            BadInputError: it is gone, or cannot be read.
            ClusterError: the cluster does not answer.
        """
        key, feed = self._found(job_id)
        job = feed.job(key)
        if job is None:
            raise BadInputError("of this job there is only its history")
        mask = self._mask(job)
        document = mask.job(job).to_document()
        return visible(mask.script(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1 << 16)))

    def events(self, job_id: str) -> list[Document]:
        """Kubernetes' last events about a job.

        Raises:
            BadInputError: it is gone.
            ClusterError: the cluster does not answer, or the user may not list events.
        """
        key, feed = self._found(job_id)
        return [*islice(_told(feed.events(key)), MOST_EVENTS)]

    def log_command(self, job_id: str, attempt: str) -> list[str]:
        """The words after `ddpjob` that print a job's log.

        Raises:
            BadInputError: the job is gone, or the attempt is no number.
        """
        if attempt and not (attempt.isascii() and attempt.isdecimal()):
            raise BadInputError("an attempt is a whole number, such as 2")
        key, _ = self._found(job_id)
        words = (*LOGS, *OF_ATTEMPT) if attempt else LOGS
        if key.origin == Origin.HISTORY:
            past = (f"--attempt={attempt}",) if attempt else ()
            given = {flag: getattr(self._arguments, flag.replace("-", "_"), None) for flag in OF_A_HISTORY}
            flags = [f"--{flag}={value}" for flag, value in given.items() if value]
            return ["logs", f"{key.namespace}/{key.name}", *LOGS[3:], f"--uid={key.uid}", *flags, *past]
        return command_of(Act("", "", words, words), key, self._arguments, attempt)

    def act(self, job_id: str, name: str, given: str) -> tuple[bool, str]:
        """Does to a job what an action of this name does; whether that succeeded, and what was said.

        Raises:
            BadInputError: there is no such action, or it is not possible for this job.
        """
        key, _ = self._found(job_id)
        act = ACTIONS.get(name)
        if act is None:
            raise BadInputError("there is no such action")
        if act.asks and not (given.isascii() and given.isdecimal()):
            raise BadInputError(f"{act.asks} A whole number, such as 2")
        words = command_of(act, key, self._arguments, given)
        if not words:
            raise BadInputError(f"{act.there[0]}: {refusal(key)}")
        succeeded, said = carried_out(words)
        return succeeded, visible(without_secrets(said))

    def _found(self, job_id: str) -> tuple[JobKey, Feed]:
        """A job that the feeds have named, so that no id leads to any other file or object."""
        if job_id not in self._keys:
            self.jobs()
        if job_id not in self._keys:
            raise BadInputError("The job is gone.")
        key = self._keys[job_id]
        return key, next(feed for feed in self._feeds if feed.origin == key.origin)


def _told(events: Sequence[Document]) -> Iterator[Document]:
    """Events, the newest first."""
    for event in reversed(events):
        said = {name: one_line(str(event.get(name) or "")) for name in ("type", "reason", "message")}
        yield {**said, "message": without_secrets(said["message"]), "time": when(event), "count": event.get("count")}
