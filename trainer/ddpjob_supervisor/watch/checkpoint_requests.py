"""Passes requests for a checkpoint on to the program, and follows the last request until it is answered.

The operator writes a request, a word that differs from all others, into an annotation of rank 0's pod. The kubelet
shows the annotation in a file. Each request is passed on once, and only to the attempt in which it arrives: no later
attempt repeats it. Making a request requires the right to change the pod. So the status port, which anybody can
reach, accepts no requests.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from ddpjob_rank.moments import rfc3339
from ddpjob_rank.reporting.save_request import ASKED, PIPE
from ddpjob_rank.reporting.teller import STARTING
from msgspec.structs import replace

from .asking import write_to
from .beat import BeatFields

LONGEST = 64
"""How many characters of a request are read."""

REQUESTED, SAVED, NOT_SAVED = "Requested", "Saved", "NotSaved"

NO_RANKS = "no rank is running"
NO_STEP = "no step has finished yet, so there is nothing to save"
UNABLE = (
    "the program does not save on request: ddpjob-train with --checkpoint-dir does, and so does a script with"
    " ddpjob.Training or ddpjob.on_save_request"
)


class RequestOutcome(msgspec.Struct, frozen=True):
    """The outcome of the last request."""

    request: str = ""
    """The word of the request; empty if there was none."""
    state: str = ""
    """REQUESTED, SAVED or NOT_SAVED."""
    step: int | None = None
    """If the state is SAVED, the step of the complete checkpoint."""
    message: str = ""
    """If the state is NOT_SAVED, the reason."""


class CheckpointRequests:
    """The requests for checkpoints that are made to one supervisor's program."""

    def __init__(self, file: Path, heartbeat: Path) -> None:
        """`file` is the file with the last request; `heartbeat` is the path of rank 0's heartbeat file."""
        self.last = RequestOutcome()
        self._file = file
        self._pipe = Path(f"{heartbeat}{PIPE}")
        self._attempt = 0
        self._since = ""
        self._step = 0
        """The last step that had finished when the request came. A checkpoint of an older step does not answer it."""

    def look(self, attempt: int, *, running: bool, beats: Callable[[], Sequence[BeatFields]]) -> bool:
        """Takes a new request, or follows the last one; returns whether `last` has changed.

        `attempt` is the present attempt, or the last one if no rank is `running`; `beats` returns the reports of its
        ranks on this node.
        """
        request, before = _read(self._file), self.last
        if request and request != before.request:
            self.last = self._begun(RequestOutcome(request, REQUESTED), attempt, _first(beats()), running=running)
        elif before.state == REQUESTED:
            self.last = self._followed(before, attempt, _first(beats()), running=running)
        return self.last is not before

    def _begun(
        self, asked: RequestOutcome, attempt: int, beat: BeatFields | None, *, running: bool
    ) -> RequestOutcome:
        if beat is None or not running:
            return replace(asked, state=NOT_SAVED, message=NO_STEP if running else NO_RANKS)
        self._attempt, self._since, self._step = attempt, rfc3339(time.time()), beat.get("step", 0)
        if not write_to(self._pipe, ASKED):
            starts = beat["activity"] == STARTING
            return replace(asked, state=NOT_SAVED, message=NO_STEP if starts else UNABLE)
        return self._followed(asked, attempt, beat, running=True)

    def _followed(
        self, asked: RequestOutcome, attempt: int, beat: BeatFields | None, *, running: bool
    ) -> RequestOutcome:
        same = attempt == self._attempt
        saved = beat.get("checkpoint") if same and beat is not None else None
        # If steps are only counted, their numbers may differ from those that the program gives its checkpoints.
        numbered = beat is not None and beat.get("reports", False)
        if saved and (saved["step"] >= self._step if numbered else saved["time"] > self._since):
            return replace(asked, state=SAVED, step=saved["step"])
        if running and same:
            return asked
        return replace(asked, state=NOT_SAVED, message=f"attempt {self._attempt} ended before the program had saved")


def _first(beats: Sequence[BeatFields]) -> BeatFields | None:
    return next((beat for beat in beats if beat["rank"] == 0), None)


def _read(file: Path) -> str:
    """The request in the file, without spaces around it; empty if there is none, or it cannot be read now."""
    try:
        content = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(content, LONGEST).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(content)
