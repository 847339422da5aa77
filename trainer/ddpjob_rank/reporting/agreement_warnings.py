"""Warnings about ranks that do not take part in an agreement: a sentence each, with what to do."""

from collections.abc import Collection

from ddpjob_rank.console import listed

from . import agreement_rules as rules
from .agreement_rules import Wish

MOST_NAMED = 8
PLURAL = {"has": "have", "is": "are"}
IN_WORDS = {Wish.SAVE: "saved", Wish.STOP: "stopped"}
CONNECTION = "find out what closes connections between ranks"


def ranks(numbers: Collection[int], verb: str) -> str:
    """Ranks as the subject of a sentence: `rank 2 has`, `ranks 2, 5 have`."""
    if len(numbers) > 1:
        verb = PLURAL.get(verb, verb)
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(sorted(numbers), MOST_NAMED)} {verb}"


def not_called(absent: Collection[int], function: str, rank: int) -> str:
    """Warns that some ranks have never called a function that another rank has called."""
    return (
        f"{ranks(absent, 'has')} not called {function} in the {rules.MISMATCH_SECONDS:.0f} s since rank {rank} called"
        " it, or cannot connect to rank 0: call it equally often on all ranks, or they stop after different steps"
    )


def given_up(missing: Collection[int], wish: Wish, never_called: str) -> str:
    """Warns that a wish was given up, because some ranks did not answer, or never called the function."""
    why = ranks(missing, f"never called {never_called}" if never_called else "did not answer")
    cure = "call it on all ranks" if never_called else "find out whether it is stopped, or too busy to answer"
    result = (
        "so the ranks cannot stop after the same step, and each rank stops when its own process is told to"
        if wish is Wish.STOP
        else "so the ranks cannot save now, and try again when the next save is due"
    )
    return f"{why}, {result}: {cure}"


def called_less_often(late: Collection[int], function: str, wish: Wish) -> str:
    """Warns that some ranks have not made the call in which the others have acted."""
    return (
        f"{ranks(late, 'has')} not come as far as the others, which {IN_WORDS[wish]} {rules.MISMATCH_SECONDS:.0f} s"
        f" ago: call {function} equally often on all ranks"
    )


def left_behind(rank: int, wish: Wish) -> str:
    """Warns that a rank could not be told in time that all ranks act."""
    return (
        f"rank {rank} had lost its connection to rank 0, so the others {IN_WORDS[wish]} without it, and it does the"
        f" same later: {CONNECTION}"
    )


def in_doubt(rank: int, wish: Wish) -> str:
    """Warns that a rank does not know whether the others have acted."""
    return (
        f"rank {rank} has waited {rules.PATIENCE_SECONDS[wish]:.0f} s to hear from rank 0 whether all ranks"
        f" {wish.name.lower()} after this step, and goes on, but the others may have {IN_WORDS[wish]}: {CONNECTION}"
    )
