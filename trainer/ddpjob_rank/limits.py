"""How long a gang may go without finishing a step before it counts as stalled.

    the gang is         with stallTimeoutSeconds T    learned from G, the longest pause between two steps
    training            T                             L = 10 G, at least 60 s; doubled by each stall; at most 1800 s
    training, silent    T                             the same, but at least 480 s before it is doubled
    the first step      10 T or 5 F, at least 600 s   5 F, at least 600 s; doubled by each stall while below 3600 s
    anything else       10 T, at least 600 s          10 L, at least 600 s, at most 3600 s

The time starts again with each step, and during a save, an evaluation or another activity that takes long with each
report that it goes on. F is the longest time that the job's first step has taken in any attempt of the same size,
image and start method. At the first start it is unknown, and a slow start (data is loaded, kernels are compiled)
cannot be told from a hang: without T there is no limit then. firstStepTimeoutSeconds, if set, is the limit of each
first step. "Anything else" is a save, an evaluation, the time after the last step, and any activity to which a
program gives a name.

Until ten pauses are known, L is 1800 s. For a silent program it is twice the time of the first step, or 10 G if that
is more. A program is silent if it does not report its evaluations (ddpjob-train reports them): in its first
evaluation a silent program looks as if it hung. If an evaluation is only detected, by `eval()` of the model and by
its batches, the program counts as silent. Reports of saves do not count, because they show nothing about evaluations.
What is learned may be too short: each stall doubles it, so that a program that is only slow is not ended again and
again. The learned limits and their doublings are kept for the pods of later attempts.

No rank may give up waiting for the others before this limit, because it would look like the rank at fault.
ddpjob-train waits for `longest` plus a minute. Any other program has PyTorch's timeout, 600 s with NCCL, unless it
sets another. Therefore the limit of a silent program is shorter than that, from the first step until the first stall.
After a stall, NCCL's watchdog may end a waiting rank before the limit is reached; even then, the report names the
rank that kept the others waiting.
"""

import math
from dataclasses import dataclass
from enum import Enum

JOINING_SECONDS = 600.0
"""How long nodes that have joined wait for the others by default. After that, the others count as lost."""

TIMES_THE_LONGEST_PAUSE = 10.0
TIMES_THE_FIRST_STEP = 2.0
STARTING_TIMES_THE_FIRST_STEP = 5.0
TRAINING_AT_LEAST, SILENT_AT_LEAST, TRAINING_AT_MOST = 60.0, 480.0, 1800.0

TIMES_TRAINING = 10.0
OTHER_AT_LEAST, OTHER_AT_MOST = 600.0, 3600.0

ENOUGH_PAUSES = 10


class Activity(Enum):
    """What a gang is doing, as far as limits depend on it."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    EVALUATING = "evaluating"
    FINISHING = "finishing"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Learned:
    """What a job's limits have learned. It is kept for the pods of later attempts."""

    stalls: int = 0
    longest: float = 0.0
    """The longest pause between two steps, in seconds."""
    first_step: float = 0.0
    """The longest time that the first step of an attempt took, in seconds; 0 if unknown."""


class StallLimits:
    """The limits of one job. What they have learned from the job's pauses remains valid after restarts."""

    def __init__(
        self, timeout: float | None, learned: Learned | None = None, first_step_timeout: float | None = None
    ) -> None:
        self._timeout = timeout
        self._first_step_timeout = first_step_timeout
        learned = learned or Learned()
        self._doublings, self._longest, self._first_step = learned.stalls, learned.longest, learned.first_step
        self._pauses = 0
        self._announces = False

    @property
    def learned(self) -> Learned:
        """What has been learned so far."""
        return Learned(self._doublings, self._longest, self._first_step)

    def note_pause(self, seconds: float) -> None:
        """Records the time between two steps during which no other activity was announced."""
        self._longest = max(self._longest, seconds)
        self._pauses += 1

    def note_first_step(self, seconds: float) -> None:
        """Records how long the first step of an attempt took, or an upper bound of it."""
        self._first_step = max(self._first_step, seconds, 1.0)  # 0 would mean that the time is unknown.

    def note_announcements(self) -> None:
        """Records that the program announces activities that take long between two steps."""
        self._announces = True

    def note_stall(self) -> None:
        """Records that a limit was exceeded. Whatever the cause was, the learned limit may have been too short."""
        self._doublings += 1

    def seconds(self, doing: Activity) -> float:
        """How long the gang may go without finishing a step during an activity; infinity if there is no limit."""
        if doing is Activity.STARTING and self._first_step_timeout is not None:
            return self._first_step_timeout
        first_step = STARTING_TIMES_THE_FIRST_STEP * self._first_step if doing is Activity.STARTING else 0.0
        if self._timeout is not None:
            other = max(TIMES_TRAINING * self._timeout, OTHER_AT_LEAST, first_step)
            return self._timeout if doing is Activity.TRAINING else other
        only_heard = doing is Activity.EVALUATING and not self._announces
        if doing is Activity.TRAINING or only_heard:
            return self._learned() if self._announces else self._learned_in_silence()
        if doing is Activity.STARTING:
            doubled = min(max(OTHER_AT_LEAST, first_step) * 2.0**self._doublings, OTHER_AT_MOST)
            return max(first_step, doubled) if first_step else math.inf
        return _between(OTHER_AT_LEAST, TIMES_TRAINING * self._learned(), OTHER_AT_MOST)

    def _learned(self) -> float:
        if self._pauses < ENOUGH_PAUSES:
            return TRAINING_AT_MOST
        return self._doubled(max(TRAINING_AT_LEAST, TIMES_THE_LONGEST_PAUSE * self._longest))

    def _learned_in_silence(self) -> float:
        known = TIMES_THE_LONGEST_PAUSE * self._longest
        if self._pauses < ENOUGH_PAUSES:
            known = max(known, TIMES_THE_FIRST_STEP * self._first_step)
        return self._doubled(max(SILENT_AT_LEAST, known))

    def _doubled(self, seconds: float) -> float:
        return min(seconds * 2.0**self._doublings, TRAINING_AT_MOST)


def longest(timeout: float | None, first_step_timeout: float | None = None) -> float:
    """The longest time that a gang may go without finishing a step, whatever it does.

    `timeout` is stallTimeoutSeconds; if it is None, the result is the limit before anything is learned.
    `first_step_timeout` is firstStepTimeoutSeconds.
    """
    limits = StallLimits(timeout, first_step_timeout=first_step_timeout)
    return max(seconds for doing in Activity if (seconds := limits.seconds(doing)) < math.inf)


def _between(least: float, seconds: float, most: float) -> float:
    return min(max(least, seconds), most)
