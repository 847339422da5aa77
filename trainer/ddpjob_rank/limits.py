"""How long a gang may go without a finished step.

    the gang is         with stallTimeoutSeconds T    learned from G, the longest pause between two steps
    training            T                             L = 10 G, at least 60 s; doubled by each stall; at most 1800 s
    the same, silently  T                             L, at least 480 s
    anything else       10 T, at least 600 s          10 L, at least 600 s, at most 3600 s

Anything else is: the first step of an attempt (data is loaded, kernels are compiled), a save, an evaluation, what
comes after the last step, and whatever a program gives another name.

L is 1800 s until enough pauses are known; for a silent program it is twice what the first step took, or 10 G if that
is more. A program is silent if it does not say when it evaluates, as ddpjob-train does: in its first evaluation it
looks as if it hung. That it says when it saves shows nothing about its evaluations. And what is learned may be wrong:
after each stall it is doubled, so that a program that only takes its time is not ended for that again and again.

No rank may give up waiting for the others before that: it would look like the one to blame. ddpjob-train waits for
`longest` and a minute more. Any other program has PyTorch's 600 s with NCCL, unless it sets others, which is why a
silent one gets less, from the first step on.
"""

from enum import Enum

JOINING_SECONDS = 600.0
"""How long those that have come wait for others, if nobody says how long: after that these count as lost."""

TIMES_THE_LONGEST_PAUSE = 10.0
TIMES_THE_FIRST_STEP = 2.0
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


class Patience:
    """The limits of one job; what it has learned stays valid through restarts."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._longest = 0.0
        self._pauses = 0
        self._first_step = 0.0
        self._announces = False
        self._doublings = 0

    def note_pause(self, seconds: float) -> None:
        """Time between two steps, in which nothing else was announced."""
        self._longest = max(self._longest, seconds)
        self._pauses += 1

    def note_first_step(self, seconds: float) -> None:
        """How long the job's very first one took, at most; others are ignored."""
        self._first_step = self._first_step or seconds

    def note_announcements(self) -> None:
        """The program announces what takes long between two steps."""
        self._announces = True

    def note_stall(self) -> None:
        """A limit was exceeded. Whatever the cause, the learned limit may have been too small."""
        self._doublings += 1

    def seconds(self, doing: Activity) -> float:
        """How long the gang may go without a finished step."""
        if self._timeout is not None:
            return (
                self._timeout if doing is Activity.TRAINING else max(TIMES_TRAINING * self._timeout, OTHER_AT_LEAST)
            )
        if doing is Activity.TRAINING:
            return self._learned() if self._announces else max(SILENT_AT_LEAST, self._learned_in_silence())
        return _between(OTHER_AT_LEAST, TIMES_TRAINING * self._learned(), OTHER_AT_MOST)

    def _learned(self) -> float:
        if self._pauses < ENOUGH_PAUSES:
            return TRAINING_AT_MOST
        return self._doubled(max(TRAINING_AT_LEAST, TIMES_THE_LONGEST_PAUSE * self._longest))

    def _learned_in_silence(self) -> float:
        if self._pauses >= ENOUGH_PAUSES:
            return self._learned()
        known = max(TIMES_THE_FIRST_STEP * self._first_step, TIMES_THE_LONGEST_PAUSE * self._longest)
        return self._doubled(max(SILENT_AT_LEAST, known))

    def _doubled(self, seconds: float) -> float:
        return min(seconds * 2.0**self._doublings, TRAINING_AT_MOST)


def longest(timeout: float | None) -> float:
    """The longest that a gang with this stallTimeoutSeconds may go without a finished step, whatever it does.

    Without one it is the limit while nothing is known.
    """
    patience = Patience(timeout)
    return max(patience.seconds(doing) for doing in Activity)


def _between(least: float, seconds: float, most: float) -> float:
    return min(max(least, seconds), most)
