"""The fault table: who dies, when, and what is to come of it."""

from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """What comes of a fault; each is what stands in the page."""

    IN_PLACE = "in place"
    REPLACED = "replaced"
    RECREATED = "recreated"
    UNHARMED = "unharmed"
    WAITS = "waits"
    """The known limits."""
    NOTHING = "none"
    """There is nothing of the kind then."""


class When(StrEnum):
    """Where training is when it happens."""

    GATHERING = "gathering"
    PREFLIGHT = "preflight"
    RENDEZVOUS = "rendezvous"
    FIRST_STEP = "first step"
    STEP = "step"
    SAVE = "save"
    EVALUATION = "evaluation"
    TEARDOWN = "teardown"
    END = "end"


FRUITLESS = frozenset({When.RENDEZVOUS, When.FIRST_STEP})
"""Attempts that end then got nowhere: there must not be two in a row, nor one by an exception of its own."""

IN_A_GANG = (
    When.PREFLIGHT,
    When.RENDEZVOUS,
    When.STEP,
    When.FIRST_STEP,
    When.SAVE,
    When.EVALUATION,
    When.TEARDOWN,
    When.END,
)
"""The order in which one gang meets them."""


class Program(StrEnum):
    """What trains: our trainer, or a script with the library. The values are the page's."""

    TRAINER = "ddpjob-train"
    TRAINING = "ddpjob.Training"
    CHECKPOINTS = "ddpjob.Checkpoints"


STAGES = {
    Program.TRAINER: IN_A_GANG,
    Program.TRAINING: tuple(when for when in IN_A_GANG if when is not When.PREFLIGHT),
    Program.CHECKPOINTS: tuple(when for when in IN_A_GANG if when not in {When.PREFLIGHT, When.EVALUATION}),
}
"""Of each program. Before a preflight has ended, no program runs."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What is recorded of a fault: whose node, the cause, and how the message reads."""

    node: int
    cause: str
    message: str


class Who(StrEnum):
    """Who dies. The values are the page's."""

    RANK = "a rank: SIGKILL"
    RAISES = "a rank: an exception of its own"
    RANK_0 = "rank 0: SIGKILL"
    ZYGOTE = "the zygote of node 1"
    SUPERVISOR = "the supervisor of node 1"
    LEADER = "the supervisor of node 0"
    POD = "all of node 1's pod"
    POD_0 = "all of node 0's pod"
    FROZEN = "a rank is frozen (SIGSTOP)"
    SUPERVISOR_FROZEN = "the supervisor of node 1 is frozen for longer than 10 s"
    LINK = "the connection between the supervisors"
    NODE = "node 1, without a goodbye, and it comes back later"


ROWS = {
    Program.TRAINER: tuple(Who),
    Program.TRAINING: tuple(Who),
    Program.CHECKPOINTS: (Who.RANK,),
}
"""It is the same code that saves for both kinds of scripts."""

KILLED = "killed by SIGKILL"
OUT_OF_REACH = "its supervisor was out of reach"

INCIDENTS = {
    Who.RANK: Incident(1, "Application", KILLED),
    Who.RAISES: Incident(1, "Application", "a mistake of the training code"),
    Who.RANK_0: Incident(0, "Application", KILLED),
    Who.ZYGOTE: Incident(1, "Application", KILLED),
    Who.FROZEN: Incident(1, "Stalled", "rank 1 did not enter the collective: it is stopped (state T)"),
    Who.SUPERVISOR_FROZEN: Incident(1, "PeerLost", OUT_OF_REACH),
    Who.LINK: Incident(1, "PeerLost", OUT_OF_REACH),
}
"""Each costs one restart. Who is not here takes its pod along: that is no incident but a pod to be replaced."""

FROZEN_IN_RENDEZVOUS = {
    Program.TRAINER: Incident(0, "PeerLost", "waited 20 s for rank 1: 1 of 2 processes came"),
    Program.TRAINING: Incident(0, "PeerLost", "lost a peer: Timed out after"),
}
"""Nobody knows yet whether this program will report steps, so the others' patience with it is what ends it. In a
script the message is PyTorch's, which names no rank."""

AT_NODE_0 = frozenset({Who.RANK_0, Who.LEADER, Who.POD_0})

NO_RANK_YET = frozenset({Who.RANK, Who.RAISES, Who.RANK_0, Who.FROZEN})

CODES = {
    Who.RANK: (204, 137),
    Who.RAISES: (204, 1),
    Who.RANK_0: (137, 204),
    Who.ZYGOTE: (204, 137),
    Who.FROZEN: (201, 204),
    Who.SUPERVISOR_FROZEN: (204, 204),
    Who.LINK: (204, 204),
}
"""The exit codes of nodes 0 and 1 where an attempt ends so, and the operator decides."""

CODES_AT_THE_END = {
    Who.RANK: (0, 137),
    Who.RAISES: (0, 1),
    Who.RANK_0: (137, 0),
    Who.ZYGOTE: (0, 137),
    Who.SUPERVISOR: (0, -9),
    Who.LEADER: (-9, 0),
    Who.POD: (0, -9),
    Who.POD_0: (-9, 0),
    Who.NODE: (0, -9),
}
"""The same where the other node is done: there is nobody left to train with in place."""

AT_THE_END = {
    Who.FROZEN: Result.WAITS,
    Who.SUPERVISOR_FROZEN: Result.UNHARMED,
    Who.LINK: Result.NOTHING,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """What is to come of one fault at one time."""

    result: Result
    incident: Incident | None = None
    codes: tuple[int, int] | None = None


def expected(who: Who, when: When, program: Program = Program.TRAINER) -> Cell:
    """The cell of the table."""
    if when is When.GATHERING:
        pods = who not in INCIDENTS
        known = Result.NOTHING if who in NO_RANK_YET else Result.REPLACED if pods else Result.UNHARMED
        return Cell(known)
    if when is When.END:
        return Cell(AT_THE_END.get(who, Result.RECREATED), codes=CODES_AT_THE_END.get(who))
    if who not in INCIDENTS:
        return Cell(Result.REPLACED)
    if when is When.PREFLIGHT or (who is Who.RAISES and when in FRUITLESS):
        return Cell(Result.RECREATED, codes=CODES[who])
    if (who, when) == (Who.FROZEN, When.RENDEZVOUS):
        return Cell(Result.IN_PLACE, FROZEN_IN_RENDEZVOUS[program])
    return Cell(Result.IN_PLACE, INCIDENTS[who])
