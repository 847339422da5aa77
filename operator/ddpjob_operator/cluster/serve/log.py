"""The operator's own log, with one line per record, as JSON or text. Each record names the job that it concerns."""

import logging
import sys
from textwrap import indent
from typing import Any, Literal

from pythonjsonlogger.json import JsonFormatter

from ddpjob_operator.text import one_line, visible

Format = Literal["json", "text"]

FIELDS = ("namespace", "job", "uid")


def about(key: tuple[str, str], uid: str = "") -> dict[str, str]:
    """Returns the `extra` argument for a log call about this job."""
    return {"namespace": key[0], "job": key[1], "uid": uid}


def set_up(kind: Format, level: str) -> None:
    """Sends the log to standard error. kopf logs only errors there, because `job_watch` logs each restart of kopf."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if kind == "json" else _Text())
    handler.addFilter(_shorten_server_errors)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.ERROR)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _shorten_server_errors(record: logging.LogRecord) -> bool:
    """Shortens kopf's tracebacks to one line if a server's error or incomplete answer is the cause, and not a bug."""
    error = record.exc_info[1] if record.exc_info else None
    known = ("API", "WatchingError", "JSONDecodeError")
    if record.name.startswith("kopf") and error is not None and type(error).__name__.startswith(known):
        record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error}", None, None
    return True


class _Json(JsonFormatter):
    def __init__(self) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            datefmt="%Y-%m-%dT%H:%M:%S%z",
        )


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  The name is logging's.
        """Formats a message as a single line, because quoted texts, such as a policy's, could imitate log lines."""
        text = super().formatMessage(record)
        job = getattr(record, "job", None)
        return one_line(f"{text}  ({record.__dict__['namespace']}/{job})" if job else text)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Indents a traceback, so that its lines cannot be mistaken for other lines of the log."""
        return indent(visible(super().formatException(ei)), "  ", lambda _: True)
