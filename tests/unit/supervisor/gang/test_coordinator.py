"""What the coordinator makes of what happens: its phase, what it says to whom, and the incidents that it records."""

from collections.abc import Callable

import pytest
from ddpjob_supervisor.gang.coordinator import EXAMINING_SECONDS, PARTING_SECONDS, SETTLING_SECONDS
from ddpjob_supervisor.gang.judging import KILLED_SECONDS
from ddpjob_supervisor.gang.messages import (
    INCIDENTS_KEPT,
    Beats,
    End,
    Examined,
    Failed,
    Finished,
    Idle,
    Incident,
    Leave,
    Located,
    Looked,
    Message,
    Past,
    Ping,
    Start,
    UnreadableError,
)
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.watch.blame import Observation
from msgspec.structs import replace

from .gangs import (
    AT_7,
    BEGIN,
    CONFIG,
    INTERRUPTED,
    KILLED,
    LOST,
    RAISED,
    SAVED,
    STUCK,
    WAITED,
    WELL,
    Gang,
    beat,
    hello,
    limits,
)

Row = tuple[Callable[[], Gang], Phase, str, list[str]]
"""What happens to a gang; then the phase, what was said last, and the incidents."""


def trains(nodes: int = 2, **settings: object) -> Gang:
    return Gang(nodes, limits(**settings)).starts()  # type: ignore[arg-type]


def tried(nodes: int = 2) -> Gang:
    return Gang(nodes, limits(), check=True).starts()


def unseen(gang: Gang) -> Gang:
    """Ends an attempt of two nodes by the loss of a peer, with nobody to blame."""
    return gang.fails(0).idle(0, LOST).idle(1, replace(LOST, rank=1))


G, R, P, S, X, D = (
    Phase.GATHERING,
    Phase.RUNNING,
    Phase.PREFLIGHT,
    Phase.STALLED,
    Phase.STOPPING,
    Phase.DONE,
)
KILL, PEER = "1: rank 1 Application", "1: rank 0 PeerLost"
OUT = "1: rank 1 PeerLost"

STARTING: dict[str, Row] = {
    "nobody is there": (Gang, G, "", []),
    "not all are there": (lambda: Gang().joins(0), G, "", []),
    "all are there": (lambda: Gang().joins(0, 1), R, "Start(1) to 0 1", []),
    "a coordinator alone": (lambda: Gang(1).joins(0), R, "Start(1) to 0", []),
    "the first attempt has the operator's number": (lambda: Gang().joins(0, 1, attempt=7), R, "Start(7) to 0 1", []),
    "it may know none": (lambda: Gang(1).joins(0, attempt=0), R, "Start(1) to 0", []),
    "one comes and goes before the start": (lambda: Gang().joins(1).lost(1).joins(1), G, "", []),
    "nothing ran, so nothing was lost": (lambda: Gang().joins(1).lost(1).joins(0, 1), R, "Start(1) to 0 1", []),
    "who is about to go is not started": (lambda: Gang(3).joins(0, 1).leaving(1).joins(2), G, "", []),
    "its successor is": (
        lambda: Gang(3).joins(0, 1).leaving(1).joins(2).lost(1).joins(1, incarnation=2),
        *(R, "Start(1) to 0 1 2", []),
    ),
}

RESTARTING: dict[str, Row] = {
    "a rank fails": (lambda: trains().fails(1), X, "Stop(1) to 0 1", []),
    "it fails again": (lambda: trains().fails(1).fails(1), X, "", []),
    "another one fails too": (lambda: trains().fails(1).fails(0), X, "", []),
    "some ranks still run": (lambda: trains().fails(1).idle(1, KILLED), X, "", []),
    "all have ended": (lambda: trains().breaks(1), R, "Start(2) to 0 1", [KILL]),
    "a node that could not start its ranks": (lambda: trains().idle(1, KILLED), X, "Stop(1) to 0", []),
    "a coordinator alone": (lambda: trains(1).breaks(0), R, "Start(2) to 0", ["1: rank 0 Application"]),
    "a failure of its own comes before its consequence": (
        lambda: trains().fails(0).idle(0, LOST).idle(1, KILLED),
        *(R, "Start(2) to 0 1", [KILL]),
    ),
    "its consequence alone waits for somebody to be missed": (lambda: unseen(trains()), X, "", []),
    "and not for ever": (lambda: unseen(trains()).after(SETTLING_SECONDS), R, "Start(2) to 0 1", [PEER]),
    "nor less": (lambda: unseen(trains()).after(SETTLING_SECONDS / 2), X, "", []),
    "somebody is missed": (lambda: unseen(trains()).lost(1), G, "", []),
    "his successor comes": (lambda: unseen(trains()).lost(1).joins(1, incarnation=2), R, "Start(2) to 0 1", []),
    "the second time as the first": (
        lambda: trains().steps().breaks(1).steps().breaks(0),
        *(R, "Start(3) to 0 1", [KILL, "2: rank 0 Application"]),
    ),
    "a late failure of the former attempt": (lambda: trains().breaks(1).says(1, Failed(1)), R, "", [KILL]),
    "a late end of the former attempt": (lambda: trains().breaks(1).says(1, Idle(1, (KILLED,))), R, "", [KILL]),
    "a late success of the former attempt": (lambda: trains().breaks(1).says(0, Finished(1)), R, "", [KILL]),
}

LOSING: dict[str, Row] = {
    "a supervisor is lost": (lambda: trains(3).lost(1), X, "Stop(1) to 0 2", []),
    "it is waited for": (lambda: trains().lost(1).idle(0, LOST), G, "", []),
    "its pod is a new one, which the operator counts": (
        lambda: trains().lost(1).idle(0, LOST).joins(1, incarnation=2),
        *(R, "Start(2) to 0 1", []),
    ),
    "its pod is the same, which nobody else knows of": (
        lambda: trains().lost(1).idle(0, LOST).joins(1),
        *(R, "Start(2) to 0 1", [OUT]),
    ),
    "it is back before the others have ended": (lambda: trains().lost(1).joins(1), X, "", []),
    "and then they have": (lambda: trains().lost(1).joins(1).idle(0, LOST), R, "Start(2) to 0 1", [OUT]),
    "it is back and replaced after all": (
        lambda: trains(3).lost(1).lost(2).idle(0).joins(1).lost(1).joins(1, 2, incarnation=2),
        *(R, "Start(2) to 0 1 2", []),
    ),
    "it comes a second time, and its first connection is dead": (lambda: trains().joins(1), X, "Stop(1) to 0", []),
    "so does the only one": (lambda: trains(1).joins(0), R, "Start(2) to 0", ["1: rank 0 PeerLost"]),
    "all are lost": (lambda: trains().lost(0).lost(1), G, "", []),
    "it has told how its rank had failed": (
        lambda: trains().fails(1).idle(1, KILLED).lost(1).idle(0, LOST).joins(1),
        *(R, "Start(2) to 0 1", [KILL]),
    ),
    "it has not": (lambda: trains().fails(1).lost(1).idle(0, LOST).joins(1), R, "Start(2) to 0 1", [OUT]),
    "another rank failed by itself": (lambda: trains().lost(1).idle(0, KILLED), G, "", ["1: rank 0 Application"]),
    "that is one incident": (
        lambda: trains().lost(1).idle(0, KILLED).joins(1),
        *(R, "Start(2) to 0 1", ["1: rank 0 Application"]),
    ),
    "it was lost between two attempts": (
        lambda: trains(3).lost(1).idle(0).idle(2).lost(2).joins(1, 2, incarnation=2),
        *(R, "Start(2) to 0 1 2", []),
    ),
}

PARTED = [G, "", []]

PARTING: dict[str, Row] = {
    "one is interrupted, and others may be told as well": (
        lambda: trains().leaving(1).idle(1, INTERRUPTED),
        R,
        "",
        [],
    ),
    "they lose it": (lambda: trains(3).leaving(1).fails(0, LOST), R, "", []),
    "and end": (lambda: trains(3).leaving(1).idle(1, INTERRUPTED).idle(0, LOST), R, "", []),
    "they were not told": (
        lambda: trains().leaving(1).idle(1, INTERRUPTED).after(PARTING_SECONDS),
        *(X, "Stop(1) to 0", []),
    ),
    "all were": (lambda: trains().leaving(1).leaving(0).idle(1, INTERRUPTED).idle(0, LOST), *PARTED),
    "a node that is told to stop takes its time, although others are ended": (
        lambda: trains().leaving(1).fails(0).idle(0, KILLED).after(2 * KILLED_SECONDS),
        *(X, "", []),
    ),
    "a failure is one all the same": (lambda: trains().leaving(1).fails(0), X, "Stop(1) to 0 1", []),
    "nobody was told to stop": (lambda: trains().fails(0, LOST), X, "Stop(1) to 0 1", []),
    "without an operator all leave": (
        lambda: Gang(joining_seconds=60).starts().leaving(1).leaving(0).idle(1, INTERRUPTED).idle(0, INTERRUPTED),
        *(D, "Farewell to 0 1", []),
    ),
}

STOPPING_WELL: dict[str, Row] = {
    "a node is told to stop": (lambda: trains().leaving(1), R, "", []),
    "all save, and one is ready first": (lambda: trains(3).leaving(1).idle(2, SAVED), R, "", []),
    "it may go before the others have saved": (lambda: trains().leaving(1).idle(1, SAVED).lost(1), R, "", []),
    "they have": (lambda: trains().leaving(1).idle(1, SAVED).lost(1).idle(0, SAVED), G, "", []),
    "who has ended cannot be done besides": (
        lambda: trains().idle(1, SAVED).done(1).idle(0, SAVED),
        *(R, "Start(2) to 0 1", ["1: rank 0 Stopped"]),
    ),
    "it is replaced": (
        lambda: trains().leaving(1).idle(1, SAVED).lost(1).idle(0, SAVED).joins(1, incarnation=2),
        *(R, "Start(2) to 0 1", []),
    ),
    "it is replaced soon": (
        lambda: trains().leaving(1).idle(1, SAVED).lost(1).joins(1, incarnation=2).idle(0, SAVED),
        *(R, "Start(2) to 0 1", []),
    ),
    "it goes without a word of what it saved": (lambda: trains().leaving(1).lost(1), X, "Stop(1) to 0", []),
    "it did not save": (lambda: trains().leaving(1).idle(1, End(1, 143, BEGIN)), X, "Stop(1) to 0", []),
    "then the others have only lost it": (
        lambda: trains().leaving(1).idle(1, End(1, 143, BEGIN)).idle(0, LOST),
        *(G, "", []),
    ),
    "a rank fails by itself while another node is to go": (
        lambda: trains().leaving(1).fails(0).idle(0, replace(KILLED, rank=0)).idle(1),
        *(G, "", ["1: rank 0 Application"]),
    ),
    "all have stopped, and nobody was told to": (
        lambda: trains().idle(1, SAVED).idle(0, SAVED),
        *(R, "Start(2) to 0 1", ["1: rank 0 Stopped"]),
    ),
    "it is asked when nothing of it runs": (lambda: trains(3).lost(1).idle(0).idle(2).leaving(2).joins(1), G, "", []),
}

ENDING: dict[str, Row] = {
    "a node is done": (lambda: trains().done(1), R, "Farewell to 1", []),
    "it goes": (lambda: trains().done(1).lost(1), R, "", []),
    "rank 0's node is done": (lambda: trains().done(0), D, "Farewell to 0 1", []),
    "it is the last one": (lambda: trains().done(1).lost(1).done(0), D, "Farewell to 0", []),
    "it is done while others wait to be looked at": (lambda: trains().stalls().done(0), D, "Farewell to 0 1", []),
    "all is said then": (lambda: trains().done(0).lost(0).fails(1).idle(1, KILLED).lost(1), D, "", []),
    "a rank fails after others are done": (
        lambda: trains().done(1).lost(1).fails(0).idle(0, KILLED),
        *(D, "Leave(1: rank 0 Application) to 0", []),
    ),
    "those that are done may still be there": (
        lambda: trains().done(1).fails(0).idle(0, KILLED),
        *(D, "Leave(1: rank 0 Application) to 0 1", []),
    ),
    "it goes without having heard that it may, and comes back": (
        lambda: trains().done(1).lost(1).joins(1),
        *(R, "Farewell to 1", []),
    ),
    "a new pod of that node has heard nothing of its end, and is not told to go": (
        lambda: trains().done(1).lost(1).joins(1, incarnation=2),
        *(R, "", []),
    ),
    "rank 0's node is done when a rank has failed": (lambda: trains().fails(1).done(0), X, "", []),
    "there is another attempt then, as for all": (
        lambda: trains(3).fails(1).done(0).done(2).idle(1, KILLED),
        *(R, "Start(2) to 0 1 2", [KILL]),
    ),
    "unless one that is done is to go": (
        lambda: trains(3).fails(1).leaving(2).done(2).lost(2).idle(0).idle(1, KILLED),
        *(D, f"Leave({KILL}) to 0 1", []),
    ),
    "a node is lost after others are done": (
        lambda: trains(3).done(1).lost(1).lost(2).idle(0, LOST),
        *(D, "Leave(1: rank 2 PeerLost) to 0", []),
    ),
    "a node is to go after others are done": (
        lambda: trains(3).done(1).leaving(2).fails(0).idle(0, LOST).idle(2),
        *(D, "Leave(1: rank 2 PeerLost) to 0 1 2", []),
    ),
    "one is done, the other has saved": (
        lambda: trains().done(1).idle(0, SAVED),
        *(D, "Leave(1: rank 0 Stopped) to 0 1", []),
    ),
}

LEAVING_IT_TO_THE_OPERATOR: dict[str, Row] = {
    "no restarts in place": (lambda: trains(restarts=0).breaks(1), D, f"Leave({KILL}) to 0 1", []),
    "a cause that is the operator's": (
        lambda: trains(causes=("ConfigError",)).breaks(1, CONFIG),
        *(D, "Leave(1: rank 1 ConfigError) to 0 1", []),
    ),
    "an exit code that is": (lambda: trains(codes=(137,)).breaks(1), D, f"Leave({KILL}) to 0 1", []),
    "an error of its own before it gets anywhere, which a new pod may not have": (
        lambda: trains().breaks(1, RAISED),
        *(D, f"Leave({KILL}) to 0 1", []),
    ),
    "not after a step": (lambda: trains().steps().breaks(1, RAISED), R, "Start(2) to 0 1", [KILL]),
    "nor after a minute of a program without steps": (
        lambda: trains().after(60).breaks(1, RAISED),
        *(R, "Start(2) to 0 1", [KILL]),
    ),
    "nor where no operator brings a new pod": (
        lambda: Gang(joining_seconds=60).starts().breaks(1, RAISED),
        *(R, "Start(2) to 0 1", [KILL]),
    ),
    "three incidents in a row at the same step, which may be the end of the job": (
        lambda: trains().steps().breaks(1, AT_7).steps().breaks(1, AT_7).steps().breaks(1, AT_7),
        *(D, "Leave(3: rank 1 Application) to 0 1", [KILL, "2: rank 1 Application"]),
    ),
    "not where no operator ends it": (
        lambda: (
            Gang(joining_seconds=60).starts().steps().breaks(1, AT_7).steps().breaks(1, AT_7).steps().breaks(1, AT_7)
        ),
        *(R, "Start(4) to 0 1", [KILL, "2: rank 1 Application", "3: rank 1 Application"]),
    ),
    "only the first failure counts": (
        lambda: trains(codes=(2,)).fails(1).idle(1, KILLED).after(0.1).fails(0).idle(0, CONFIG),
        *(R, "Start(2) to 0 1", [KILL]),
    ),
    "one restart too many": (
        lambda: trains(restarts=1).steps().breaks(1).steps().breaks(1),
        *(D, "Leave(2: rank 1 Application) to 0 1", [KILL]),
    ),
    "the window has passed": (
        lambda: trains(restarts=1, window=100).steps().breaks(1).steps().after(100).breaks(1),
        *(R, "Start(3) to 0 1", [KILL, "2: rank 1 Application"]),
    ),
    "it has not quite": (
        lambda: trains(restarts=1, window=100).steps().breaks(1).steps().after(99).breaks(1),
        *(D, "Leave(2: rank 1 Application) to 0 1", [KILL]),
    ),
    "twice without a step": (lambda: trains().breaks(1).breaks(1), D, "Leave(2: rank 1 Application) to 0 1", [KILL]),
    "not in a row": (
        lambda: trains().breaks(1).steps().breaks(1).breaks(1),
        *(R, "Start(4) to 0 1", [KILL, "2: rank 1 Application", "3: rank 1 Application"]),
    ),
    "nor with an attempt between them that only a lost node ended": (
        lambda: trains().breaks(1).steps().lost(1).idle(0).joins(1, incarnation=2).breaks(1),
        *(R, "Start(4) to 0 1", [KILL, "3: rank 1 Application"]),
    ),
    "a step may be told of at the end": (
        lambda: trains().breaks(1).says(1, Idle(2, (KILLED,), progressed=True)).idle(0),
        *(R, "Start(3) to 0 1", [KILL, "2: rank 1 Application"]),
    ),
    "a program without steps that ran for long": (
        lambda: trains().breaks(1).after(60).breaks(1),
        *(R, "Start(3) to 0 1", [KILL, "2: rank 1 Application"]),
    ),
    "waiting for a node is not running for long": (
        lambda: trains().breaks(1).lost(1).idle(0).after(60).joins(1),
        *(D, "Leave(2: rank 1 PeerLost) to 0 1", [KILL]),
    ),
    "a supervisor out of reach counts": (
        lambda: trains(restarts=0).lost(1).idle(0).joins(1),
        *(D, f"Leave({OUT}) to 0 1", []),
    ),
}

STALLING: dict[str, Row] = {
    "no step": (lambda: trains().stalls(), S, "Examine(1) to 0 1", []),
    "found twice": (lambda: trains().stalls().stalls(), S, "", []),
    "not while ranks are being ended": (lambda: trains().fails(1).stalls(), X, "", []),
    "it is known who": (lambda: trains().stalls().blames(1), X, "Stop(1) to 0 1", []),
    "it is over": (lambda: trains().stalls().blames(1).idle(0).idle(1), R, "Start(2) to 0 1", ["1: rank 1 Stalled"]),
    "nobody can tell who": (
        lambda: trains().stalls().blames(None).idle(0).idle(1),
        *(R, "Start(2) to 0 1", ["1: rank 0 Stalled"]),
    ),
    "the rank had said why it failed, and then hung": (
        lambda: trains().steps().stalls().blames(1).idle(0).idle(1, CONFIG),
        *(R, "Start(2) to 0 1", ["1: rank 1 ConfigError"]),
    ),
    "another one had only lost a peer": (
        lambda: trains().stalls().blames(1).idle(0, LOST).idle(1),
        *(R, "Start(2) to 0 1", ["1: rank 1 Stalled"]),
    ),
    "a rank is stuck on a broken GPU": (lambda: trains().stalls().stuck(1), X, "Stop(1) to 0 1", []),
    "then that is why, whatever the others end with": (
        lambda: trains(causes=("DeviceFailed",)).stalls().stuck(1).idle(0, LOST).idle(1),
        *(D, "Leave(1: rank 1 DeviceFailed) to 0 1", []),
    ),
    "even if it does not end": (
        lambda: trains().stalls().stuck(1).idle(0).after(30),
        *(D, "Leave(1: rank 1 DeviceFailed) to 0 1", []),
    ),
    "a rank fails instead": (lambda: trains().stalls().breaks(1), R, "Start(2) to 0 1", [KILL]),
    "and who is to blame comes too late": (lambda: trains().stalls().fails(1).blames(0), X, "", []),
    "a supervisor is lost": (lambda: trains().stalls().lost(1), X, "Stop(1) to 0", []),
    "then it is no stall": (
        lambda: trains().stalls().lost(1).blames(0).idle(0).joins(1, incarnation=2),
        *(R, "Start(2) to 0 1", []),
    ),
    "a supervisor is lost after that": (
        lambda: trains().stalls().blames(1).lost(1).idle(0).joins(1),
        *(R, "Start(2) to 0 1", ["1: rank 1 Stalled"]),
    ),
    "all have saved and stopped meanwhile": (
        lambda: trains().stalls().leaving(1).idle(0, SAVED).idle(1, SAVED).lost(1),
        *(G, "", []),
    ),
}

TRYING_FIRST: dict[str, Row] = {
    "the machines are tried": (lambda: Gang(check=True).starts(), P, "Try(1) to 0 1", []),
    "some are well": (lambda: tried().idle(0, WELL), P, "", []),
    "all are": (lambda: tried().idle(0, WELL).idle(1, WELL), R, "Start(1) to 0 1", []),
    "they are tried once": (
        lambda: tried().idle(0, WELL).idle(1, WELL).steps().breaks(1),
        *(R, "Start(2) to 0 1", [KILL]),
    ),
    "one fails": (lambda: tried().fails(1), X, "Stop(1) to 0 1", []),
    "that is the operator's": (lambda: tried().breaks(1), D, f"Leave({KILL}) to 0 1", []),
    "one is lost": (lambda: tried().lost(1), X, "Stop(1) to 0", []),
    "its successor is tried with the others": (
        lambda: tried().lost(1).idle(0).joins(1, incarnation=2),
        *(P, "Try(2) to 0 1", []),
    ),
    "then all are well": (
        lambda: tried().lost(1).idle(0).joins(1, incarnation=2).idle(0, WELL).idle(1, WELL),
        *(R, "Start(2) to 0 1", []),
    ),
    "one that is lost comes back": (lambda: tried().lost(1).idle(0).joins(1), D, f"Leave({OUT}) to 0 1", []),
    "one is to go": (lambda: tried().leaving(1).idle(0, WELL).idle(1, WELL).lost(1), G, "", []),
    "and another comes": (
        lambda: tried().leaving(1).idle(0, WELL).idle(1, WELL).lost(1).joins(1, incarnation=2),
        *(P, "Try(2) to 0 1", []),
    ),
    "a peer is lost and nobody is missed": (
        lambda: unseen(tried()).after(SETTLING_SECONDS),
        *(D, f"Leave({PEER}) to 0 1", []),
    ),
}

PATIENCE = 600.0


def by_hand(nodes: int = 2, restarts: int = 0) -> Gang:
    """Without an operator."""
    return Gang(nodes, limits(restarts), joining_seconds=PATIENCE)


WITHOUT_AN_OPERATOR: dict[str, Row] = {
    "a node may be started by and by": (lambda: by_hand().joins(0).after(PATIENCE - 1), G, "", []),
    "it does not come": (lambda: by_hand(3).joins(0, 2).after(PATIENCE), D, "Leave(0: rank 1 PeerLost) to 0 2", []),
    "it comes at last": (lambda: by_hand().joins(0).after(PATIENCE - 1).joins(1), R, "Start(1) to 0 1", []),
    "training may take long": (lambda: by_hand().starts().after(2 * PATIENCE), R, "", []),
    "a node is lost": (lambda: by_hand().starts().lost(1).idle(0), D, "Leave(1: rank 1 PeerLost) to 0", []),
    "a node is lost, though restarts are allowed": (
        lambda: by_hand(restarts=9).starts().lost(1).idle(0),
        D,
        "Leave(1: rank 1 PeerLost) to 0",
        [],
    ),
    "a rank fails and its node is lost, though restarts are allowed": (
        lambda: by_hand(restarts=9).starts().fails(1).idle(1, KILLED).lost(1).idle(0),
        D,
        f"Leave({KILL}) to 0",
        [],
    ),
    "a rank fails": (lambda: by_hand().starts().breaks(1), D, f"Leave({KILL}) to 0 1", []),
    "a rank fails, and restarts are allowed": (
        lambda: by_hand(restarts=9).starts().breaks(1),
        R,
        "Start(2) to 0 1",
        [KILL],
    ),
    "one is told to stop, and all have saved": (
        lambda: by_hand().starts().leaving(1).idle(1, SAVED).lost(1).idle(0, SAVED),
        D,
        "Farewell to 0",
        [],
    ),
    "one is told to stop, and waits until all have saved": (
        lambda: by_hand().starts().leaving(0).idle(0, SAVED).idle(1, SAVED),
        D,
        "Farewell to 0 1",
        [],
    ),
    "one is told to stop while another is awaited, which comes too late": (
        lambda: by_hand().joins(0).leaving(0).joins(1).after(PATIENCE),
        D,
        "Leave(0: rank 0 PeerLost) to 0 1",
        [],
    ),
    "one is told to stop, and another cannot save": (
        lambda: by_hand().starts().leaving(0).idle(0, SAVED).idle(1, End(1, 143, BEGIN)),
        D,
        "Leave(1: rank 0 PeerLost) to 0 1",
        [],
    ),
}
INHERITING: dict[str, Row] = {
    "the attempts go on": (
        lambda: Gang().remembers(4).joins(0, attempt=1).joins(1, attempt=4),
        R,
        "Start(5) to 0 1",
        [],
    ),
    "whoever tells last of an earlier one": (
        lambda: Gang().remembers(4).remembers(2).joins(0, attempt=1).joins(1, attempt=1),
        *(R, "Start(5) to 0 1", []),
    ),
    "with the number that the operator gives it": (
        lambda: Gang().remembers(4).joins(0, attempt=5).joins(1, attempt=4),
        *(R, "Start(5) to 0 1", []),
    ),
    "also if nobody was asked who knows the last": (
        lambda: Gang(3).remembers(4).joins(0).joins(1, attempt=4).joins(2, attempt=5),
        *(R, "Start(6) to 0 1 2", []),
    ),
    "also if the machines are tried first": (
        lambda: Gang(check=True).remembers(4).joins(0, 1).idle(0, WELL).idle(1, WELL),
        *(R, "Start(5) to 0 1", []),
    ),
    "who goes and comes back meanwhile has lost nothing": (
        lambda: Gang().remembers(4).joins(1).lost(1).joins(0, 1),
        *(R, "Start(5) to 0 1", []),
    ),
}

TABLES = {
    "starting": STARTING,
    "without an operator": WITHOUT_AN_OPERATOR,
    "restarting": RESTARTING,
    "losing": LOSING,
    "stopping well": STOPPING_WELL,
    "parting": PARTING,
    "ending": ENDING,
    "leaving it to the operator": LEAVING_IT_TO_THE_OPERATOR,
    "stalling": STALLING,
    "trying first": TRYING_FIRST,
    "inheriting": INHERITING,
}


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{name}: {title}") for name, table in TABLES.items() for title, row in table.items()],
)
def test_the_coordinator_decides(row: Row) -> None:
    happens, phase, words, incidents = row
    gang = happens()
    assert (gang.coordinator.phase, gang.words, gang.incidents) == (phase, words, incidents)


@pytest.mark.parametrize(
    "message", [Failed(1), Idle(1, (KILLED,)), Finished(1), Beats(1, ({"rank": 1, "step": 5},)), Examined(1, ())]
)
@pytest.mark.parametrize("gang", ["running", "stalled", "stopping", "gathering"])
def test_what_belongs_to_an_attempt_that_is_over_changes_nothing(message: Message, gang: str) -> None:
    def made() -> Gang:
        running = trains().steps().breaks(1)
        changed = {
            "running": lambda: running,
            "stalled": running.stalls,
            "stopping": lambda: running.fails(0),
            "gathering": lambda: running.lost(0).idle(1),
        }
        return changed[gang]()

    def state(gang: Gang) -> str:
        coordinator = gang.coordinator
        return repr(
            (
                coordinator.phase,
                coordinator.attempt,
                coordinator.members,
                coordinator.past,
                coordinator.current.progressed,
                gang.said,
            )
        )

    told = made()
    told.said.clear()
    before = state(told)
    assert state(told.says(1, message)) == before


def test_who_is_not_there_can_say_nothing() -> None:
    gang = trains().lost(1)
    assert gang.says(1, Failed(1)).said == []
    assert gang.says(7, Ping()).said == []
    assert gang.lost(1).said == []


def test_the_first_failure_is_the_one_that_was_heard_of_first_whatever_the_clocks_of_the_nodes_say() -> None:
    ahead, behind = replace(KILLED, rank=0, time=BEGIN + 900), replace(KILLED, rank=1, time=BEGIN - 900)
    gang = trains().fails(0).after(0.1).fails(1).idle(1, behind).idle(0, ahead)
    assert gang.incidents == ["1: rank 0 Application"]
    incident = gang.coordinator.past.incidents[0]
    assert (incident.end, incident.tied, incident.consequence_nodes) == (ahead, False, (1,))


def test_a_coordinator_of_several_processes_names_the_first_one_of_a_node_that_was_out_of_reach() -> None:
    gang = Gang(3, limits(), processes=4).starts().lost(2).idle(0).idle(1).joins(2)
    assert [(incident.node, incident.end.rank) for incident in gang.coordinator.past.incidents] == [(2, 8)]


def test_a_stall_names_its_process_and_all_other_nodes_go_with_it() -> None:
    gang = Gang(3, limits(), processes=2).starts().stalls()
    assert gang.coordinator.current.stall is not None
    assert gang.coordinator.current.stall.since == BEGIN - 30
    gang.blames(3).idle(0).idle(1).idle(2)
    (incident,) = gang.coordinator.past.incidents
    assert (incident.node, incident.end.rank, incident.end.exit_code, incident.end.step) == (1, 3, 203, 7)
    assert (incident.consequences, incident.consequence_nodes) == (2, (0, 2))
    assert gang.coordinator.current.stall is None, "the next attempt has not stalled"


def test_a_stall_in_which_no_rank_stands_out_is_one_of_all_ranks() -> None:
    gang = trains(3).stalls().blames(None).idle(0).idle(1).idle(2)
    (incident,) = gang.coordinator.past.incidents
    assert (incident.is_of_all_ranks, incident.consequences, incident.consequence_nodes) == (True, 0, ())
    assert not trains(3).stalls().blames(0).idle(0).idle(1).idle(2).coordinator.past.incidents[0].is_of_all_ranks


WAITING: dict[str, Row] = {
    "who is alive is examined before all end": (lambda: trains(3).fails(0, WAITED), S, "Examine(1) to 0 1 2", []),
    "others give up too": (lambda: trains(3).fails(0, WAITED).idle(0, WAITED).fails(1, WAITED), S, "", []),
    "or lose a peer": (lambda: trains(3).fails(0, WAITED).idle(0, WAITED).fails(1, LOST), S, "", []),
    "one fails by itself after all": (lambda: trains(3).fails(0, WAITED).fails(1), X, "Stop(1) to 0 1 2", []),
    "the one that is found is the incident": (
        lambda: trains(2).fails(0, WAITED).idle(0, WAITED).blames(1).idle(1),
        *(R, "Start(2) to 0 1", ["1: rank 1 Stalled"]),
    ),
    "nobody is left to be examined": (
        lambda: (
            trains(2)
            .fails(0, WAITED)
            .idle(0, WAITED)
            .fails(1, LOST)
            .idle(1, replace(LOST, rank=1, begun={"0 nccl": 6}))
        ),
        *(R, "Start(2) to 0 1", ["1: rank 1 Stalled"]),
    ),
}


@pytest.mark.parametrize("row", WAITING.values(), ids=WAITING)
def test_if_a_rank_waits_for_another_until_it_gives_up_the_other_is_looked_for(row: Row) -> None:
    happens, phase, words, incidents = row
    gang = happens()
    assert (gang.coordinator.phase, gang.words, gang.incidents) == (phase, words, incidents)


def test_those_that_gave_up_are_found_waiting_although_they_have_ended() -> None:
    gang = trains().fails(0, WAITED).idle(0, WAITED).says(1, Examined(1, (Observation(1, "S"),)))
    assert gang.coordinator.examined
    observations = gang.coordinator.observations()
    assert (observations[0].state, observations[0].where) == ("S", "NCCL's ALLREDUCE number 7")
    assert observations[1] == Observation(1, "S")


def test_all_have_been_examined_once_each_node_with_ranks_has_answered() -> None:
    gang = trains(3).done(2).stalls()
    assert gang.words == "Examine(1) to 0 1"
    assert not gang.coordinator.examined
    gang.says(0, Examined(1, (Observation(0),)))
    assert not gang.coordinator.examined
    gang.says(1, Examined(1, (Observation(1),)))
    assert gang.coordinator.examined
    assert gang.coordinator.observations() == {0: Observation(0), 1: Observation(1), 2: Observation(2, "X")}


@pytest.mark.parametrize("goes", ["stays", "goes"])
def test_of_a_node_that_is_done_all_processes_have_ended(goes: str) -> None:
    gang = Gang(2, limits(), processes=2).starts().done(1)
    if goes == "goes":
        gang.lost(1)
    gang.stalls()
    assert gang.coordinator.observations() == {process: Observation(process, "X") for process in (2, 3)}


@pytest.mark.parametrize("process", [0, 2, -1])
def test_nobody_speaks_of_ranks_that_are_not_its_own(process: int) -> None:
    gang = trains()
    stuck = Failed(1, "DeviceFailed", end=replace(STUCK, rank=process))
    for message in Beats(1, (beat(process, 5),)), Examined(1, (Observation(process),)), stuck:
        with pytest.raises(UnreadableError, match="is not a rank of node 1"):
            gang.says(1, message)
    assert gang.coordinator.members[1].beats == ()


def test_findings_that_never_come_are_not_waited_for_beyond_a_moment() -> None:
    gang = trains().stalls().says(0, Examined(1, (Observation(0),)))
    assert gang.coordinator.next_moment() == BEGIN + EXAMINING_SECONDS
    assert gang.coordinator.observations() == {0: Observation(0)}


def test_it_wants_to_look_again_only_where_time_alone_changes_something() -> None:
    gang = trains()
    assert gang.coordinator.next_moment() is None
    parting = trains().leaving(1).idle(1, INTERRUPTED)
    assert parting.coordinator.next_moment() == BEGIN + PARTING_SECONDS
    assert parting.leaving(0).after(PARTING_SECONDS).coordinator.next_moment() is None, "it takes its time"
    unseen(gang)
    assert gang.coordinator.next_moment() == BEGIN + SETTLING_SECONDS
    gang.lost(1)
    assert gang.coordinator.next_moment() is None


def test_each_phase_says_since_when() -> None:
    gang = trains().after(5).fails(1).after(2)
    assert gang.coordinator.state.since == BEGIN + 5
    gang.idle(0).idle(1, KILLED)
    assert (gang.coordinator.phase, gang.coordinator.state.since) == (Phase.RUNNING, BEGIN + 7)
    gang.breaks(1).after(1)
    assert (gang.coordinator.phase, gang.coordinator.state.since) == (Phase.DONE, BEGIN + 7)


def test_it_says_who_is_missing_and_not_who_is_done() -> None:
    gang = Gang(4).joins(0, 2)
    assert gang.coordinator.missing == (1, 3)
    gang.joins(1, 3).done(3).lost(3)
    assert gang.coordinator.missing == ()


def test_a_start_says_who_is_there_and_what_was() -> None:
    start = trains().steps().after(60).breaks(1).said[0][1]
    assert isinstance(start, Start)
    assert start.members == {"0": "10.0.0.0:29502", "1": "10.0.0.1:29502"}
    assert [(incident.attempt, incident.end) for incident in start.past.incidents] == [(1, KILLED)]
    assert start.past.mean_time_to_failure == 60


def test_the_mean_time_to_failure_counts_lost_nodes_and_neither_waiting_nor_stops_on_request() -> None:
    gang = trains().steps().after(100).breaks(1)
    gang.steps().after(50).lost(1).idle(0).after(1000).joins(1, incarnation=2)
    assert gang.coordinator.past.mean_time_to_failure == 75
    gang.after(50).leaving(1).idle(1, SAVED).lost(1).idle(0, SAVED).joins(1, incarnation=3)
    assert gang.coordinator.past.mean_time_to_failure == 100
    gang.steps().lost(1).idle(0).joins(1, incarnation=3)
    assert gang.coordinator.past.mean_time_to_failure == 200 / 3, (
        "a supervisor that comes back is one failure, not two"
    )


def test_a_step_of_the_former_attempt_is_none_of_this_one() -> None:
    gang = trains().steps()
    assert gang.coordinator.current.progressed
    assert not gang.breaks(1).coordinator.current.progressed
    assert gang.coordinator.members[0].beats == ()


def test_the_last_incidents_are_kept_and_all_restarts_counted() -> None:
    gang = trains(restarts=100)
    for _ in range(INCIDENTS_KEPT + 4):
        gang.steps().breaks(1)
    attempts = [incident.attempt for incident in gang.coordinator.past.incidents]
    assert attempts == list(range(5, INCIDENTS_KEPT + 5))
    assert gang.coordinator.past.restarts == INCIDENTS_KEPT + 4


def past(restarts: int, seconds_ago: float = 10) -> Past:
    """What a gang knows after so many restarts, all at once."""
    incidents = (Incident(attempt, 1, KILLED) for attempt in range(1, restarts + 1))
    return Past((*incidents,)[-INCIDENTS_KEPT:], restarts, (BEGIN - seconds_ago,) * restarts)


def test_restarts_under_the_former_coordinator_count() -> None:
    gang = Gang(2, limits(restarts=2)).remembers(3, past(2)).starts().steps().breaks(1)
    assert gang.words == "Leave(4: rank 1 Application) to 0 1"
    old = Gang(2, limits(restarts=2, window=60)).remembers(3, past(2, 61)).starts()
    assert old.steps().breaks(1).words == "Start(5) to 0 1"
    assert old.coordinator.past.restarts == 3


def test_they_count_also_where_there_were_more_than_incidents_are_kept() -> None:
    many = INCIDENTS_KEPT + 4
    gang = Gang(2, limits(restarts=many)).remembers(many + 1, past(many)).starts().steps().breaks(1)
    assert gang.words == f"Leave({many + 2}: rank 1 Application) to 0 1"
    assert gang.coordinator.past.restarts == many


def test_a_new_coordinator_knows_all_that_the_former_one_knew() -> None:
    former = trains().steps().after(100).breaks(1)
    (_, start), *_ = former.said
    assert isinstance(start, Start)
    assert start.past == former.coordinator.past
    assert (start.past.ran, start.past.failures, start.past.mean_time_to_failure) == (100, 1, 100)
    assert Gang().remembers(2, start.past).coordinator.past == former.coordinator.past


def test_attempts_that_got_nowhere_under_the_former_coordinator_count() -> None:
    (_, start), *_ = trains().breaks(1).said
    assert isinstance(start, Start)
    assert Gang().remembers(2, start.past).starts().breaks(1).words == "Leave(3: rank 1 Application) to 0 1"


def test_the_newest_of_what_the_living_know_is_remembered_whoever_answers_first() -> None:
    older, newer = past(2), past(3)
    for first, second in [(older, newer), (newer, older)]:
        gang = Gang().remembers(3, first).remembers(4, Past()).remembers(4, second)
        assert gang.coordinator.past == newer
        assert gang.starts().words == "Start(5) to 0 1"


def test_a_pod_that_was_replaced_is_not_to_come_back() -> None:
    gang = trains().lost(1).idle(0).joins(1, incarnation=3)
    assert gang.coordinator.is_outdated(hello(1, incarnation=2))
    assert not gang.coordinator.is_outdated(hello(1, incarnation=3))
    assert not gang.coordinator.is_outdated(hello(0, incarnation=1))
    gang.lost(1).idle(0)
    assert gang.coordinator.is_outdated(hello(1, incarnation=2)), "nor while its successor is away"


def test_a_rank_that_does_not_end_although_it_was_killed_is_named_and_left_to_the_operator() -> None:
    gang = Gang(3, limits(), processes=4).starts()
    gang.says(1, Beats(1, (), running=(4, 5, 6, 7))).fails(2).idle(2, KILLED).idle(0)
    gang.after(1).says(1, Beats(1, (), running=(7, 6)))
    assert gang.coordinator.next_moment() == BEGIN + KILLED_SECONDS
    assert gang.after(KILLED_SECONDS - 2).coordinator.phase is Phase.STOPPING
    assert gang.after(1).words == "Leave(1: rank 1 Stalled) to 0 1 2"
    ((_, leave), *_) = gang.said
    assert isinstance(leave, Leave)
    assert (leave.incident.end.rank, leave.incident.end.exit_code) == (6, 203)
    assert leave.incident.end.message.startswith("SIGKILL has not ended rank 6, 7 within 30 s")
    assert gang.coordinator.next_moment() is None


def test_where_only_what_the_ranks_had_started_does_not_end_its_node_is_named() -> None:
    gang = trains().fails(1).idle(0).after(KILLED_SECONDS)
    ((_, leave), *_) = gang.said
    assert isinstance(leave, Leave)
    assert (leave.incident.node, leave.incident.end.rank) == (1, 1)
    assert leave.incident.end.message.startswith(
        "SIGKILL has not ended processes that the ranks of node 1 had started"
    )


def placed(domains: str = "abab", processes: int = 1) -> Gang:
    """A gang in which ranks follow placement, in its first attempt."""
    return Gang(len(domains), limits(), processes=processes, domains=domains).starts()


def orders(gang: Gang) -> set[tuple[int, ...] | None]:
    """The order of the nodes, as each was told."""
    return {message.order for _, message in gang.said if isinstance(message, Start)}


def test_where_ranks_follow_placement_each_start_says_in_which_order_nodes_stand() -> None:
    gang = placed()
    assert (orders(gang), gang.coordinator.current.ring.order) == ({(0, 2, 1, 3)}, (0, 2, 1, 3))


def test_otherwise_it_says_nothing_about_that() -> None:
    assert orders(trains(4)) == {None}


def test_a_supervisor_that_knows_of_no_order_gets_none() -> None:
    gang = Gang(3, limits(), domains="aba").joins(0, 1)
    gang.coordinator.joined(2, hello(2), "10.0.0.2:29502", gang.now)
    assert orders(gang._hear()) == {None}


def test_machines_are_tested_by_their_numbers_and_only_then_ordered() -> None:
    gang = Gang(4, limits(), check=True, domains="abab").starts()
    assert orders(gang) == {None}
    for node in range(4):
        gang.idle(node, WELL)
    assert (gang.coordinator.phase, orders(gang)) == (R, {(0, 2, 1, 3)})


def test_what_a_node_knows_of_its_place_only_later_counts_from_the_next_attempt_on() -> None:
    gang = placed("a?ab")
    assert orders(gang) == {(0, 2, 3, 1)}
    gang.steps().says(1, Located("b"))
    assert gang.coordinator.current.ring.order == (0, 2, 3, 1)
    assert orders(gang.breaks(1)) == {(0, 2, 1, 3)}


def test_a_new_pod_elsewhere_changes_the_order() -> None:
    gang = placed("abab").steps().lost(1)
    for node in (0, 2, 3):
        gang.idle(node)
    gang.domains = "aaab"
    assert orders(gang.joins(1, incarnation=2)) == {(0, 1, 2, 3)}


@pytest.mark.parametrize("processes", [1, 2])
def test_whoever_fails_the_incident_is_of_its_node_and_names_the_rank_that_it_had(processes: int) -> None:
    for node in range(4):
        gang = placed(processes=processes).steps()
        process = gang.coordinator.current.ring.first_rank(node)
        gang.breaks(node, replace(KILLED, rank=process))
        incident = gang.coordinator.past.incidents[-1]
        assert (incident.node, incident.end.rank) == (node, [0, 2, 1, 3][node] * processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_stall_is_of_the_node_that_has_the_rank_that_is_to_blame(processes: int) -> None:
    gang = placed(processes=processes).steps().stalls().blames(1 * processes)
    assert gang.coordinator.current.stall is not None
    assert (gang.coordinator.current.stall.node, gang.coordinator.current.stall.rank) == (2, processes)
    for node in range(4):
        gang.idle(node)
    assert gang.coordinator.past.incidents[-1].node == 2


def test_of_a_node_that_is_done_the_ranks_that_it_had_have_ended() -> None:
    gang = placed().steps().done(1).stalls()
    ended = [process for process, found in gang.coordinator.observations().items() if found.state == "X"]
    assert ended == [2]


def test_nobody_speaks_of_ranks_that_follow_placement_to_another_node() -> None:
    with pytest.raises(UnreadableError, match="is not a rank of node 1"):
        placed().says(1, Beats(1, (beat(1, 1),)))


def test_a_node_that_was_out_of_reach_is_named_by_the_rank_that_it_had() -> None:
    gang = placed().steps().lost(1)
    for node in (0, 2, 3):
        gang.idle(node)
    incident = gang.joins(1).coordinator.past.incidents[-1]
    assert (incident.node, incident.end.rank, incident.end.cause) == (1, 2, "PeerLost")


def test_a_rank_that_does_not_end_is_named_with_its_node() -> None:
    gang = placed().steps().says(1, Beats(1, (), running=(2,))).fails(0)
    for node in (0, 2, 3):
        gang.idle(node)
    gang.after(KILLED_SECONDS)
    message = next(message for _, message in gang.said if isinstance(message, Leave))
    assert (message.incident.node, message.incident.end.rank) == (1, 2)
    assert message.incident.end.message.startswith("SIGKILL has not ended rank 2 (node 1) within")


def test_a_look_is_over_once_each_node_that_still_runs_has_answered() -> None:
    gang = Gang(nodes=3)
    gang.starts()
    gang.coordinator.look()
    gang._hear()
    assert gang.words == "Look to 0 1 2"
    answered = []
    for node in range(3):
        answered.append(gang.coordinator.looked)
        gang.says(node, Looked(1, (Observation(node, "S"),)))
    assert answered == [False] * 3
    assert gang.coordinator.looked
    gang.done(2)
    assert gang.coordinator.looked, "who has ended since does not matter"
    gang.coordinator.look()
    assert not gang.coordinator.looked
    for node in range(2):
        gang.says(node, Looked(1))
    assert gang.coordinator.looked
