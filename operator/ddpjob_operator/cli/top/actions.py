"""What keys do to the selected job: each is a command of `ddpjob`, which says itself what it has done."""

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_operator.api import State
from ddpjob_operator.view_model import JobKey, JobRow, Origin

ANSWER_SECONDS = 60.0
"""How long a command may take that is not watched."""
LONGEST = 400
"""How much of its answer is shown, in characters."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a key does. A command is the words after `ddpjob`: {name} is the job, and {given} an answer."""

    key: str
    label: str
    there: tuple[str, ...]
    """The command for a job on a cluster."""
    here: tuple[str, ...] = ()
    """The command for a run on this machine; empty if there is none."""
    watched: bool = False
    """Whether it gets the terminal until it ends."""
    asks: str = ""
    """What has to be typed before, as a question; empty if nothing."""
    usual: str = ""
    """The answer that is there already."""
    of_rank: bool = False
    """Whether the answer is a rank: then it is the rank under the cursor, if there is one."""
    rare: bool = False
    """Whether a screen of 80 columns names it only in its help."""
    states: frozenset[State] = frozenset(State)
    """The states of a job on a cluster in which it makes sense. Only the command knows for certain."""
    states_here: frozenset[State] | None = None
    """The same of a run on this machine, if they differ."""
    warns: str = ""
    """What it destroys, as the end of a question; empty if it can be undone. Then the user is asked twice."""


UNFINISHED = frozenset(State) - {State.SUCCEEDED, State.FAILED}
SUSPENDED = frozenset({State.SUSPENDING, State.SUSPENDED})
WITH_RANKS = UNFINISHED - {State.SUSPENDED, State.PENDING, State.QUEUED}
LOGS = ("logs", "{name}", "--follow", "--tail", "200")
STACKS = ("status", "{name}", "--stacks")
ACTS = (
    Act("l", "Logs", LOGS, LOGS, watched=True),
    Act("t", "Stack", STACKS, STACKS, watched=True, states=WITH_RANKS),
    Act("x", "Shell", ("debug", "{name}", "--rank", "{given}"), watched=True, asks="In the container of which rank?",
        usual="0", of_rank=True, states=WITH_RANKS),
    Act("s", "Suspend", ("suspend", "{name}"), ("stop", "{name}"), states=UNFINISHED - SUSPENDED),
    Act("r", "Resume", ("resume", "{name}"), ("run", "--resume", "{name}", "--detach"), states=SUSPENDED,
        states_here=frozenset({State.SUSPENDED, State.FAILED})),
    Act("n", "Size", ("scale", "{name}", "--nodes", "{given}"), asks="How many nodes?", rare=True,
        states=UNFINISHED),
    Act("c", "Cancel", ("cancel", "{name}"), rare=True, states=UNFINISHED, warns="It ends for good; its logs stay."),
    Act("d", "Delete", ("delete", "{name}", "--wait=false"), ("rm", "{name}"),
        warns="Its logs are removed with it, and on this machine its checkpoints too."),
)  # fmt: skip
"""All that can be done to a job, by key."""


def makes_sense(act: Act, row: JobRow) -> bool:
    """Whether an action makes sense in the state in which a job was seen last."""
    states = act.states if act.states_here is None or row.key.origin is not Origin.HERE else act.states_here
    return row.state in states or row.state not in frozenset(State)


def command_of(act: Act, key: JobKey, arguments: argparse.Namespace, given: str = "") -> list[str]:
    """The words of the command that does it to a job; empty if it is not possible for this job."""
    there, place = key.origin == Origin.CLUSTER, Path(key.uid)
    name = key.name if there else place.name
    words = {Origin.CLUSTER: act.there, Origin.HERE: act.here}.get(key.origin, ())
    if not words or name.startswith("-"):  # A name of ours never does; a directory's may.
        return []
    filled = [word.format(name=name, given=given) for word in words]
    if not there:
        return [*filled, "--run-dir", str(place.parent)]
    flags = {"--kubeconfig": arguments.kubeconfig, "--context": arguments.context}
    return [*filled, "-n", key.namespace, *(word for flag, one in flags.items() if one for word in (flag, str(one)))]


def refusal(key: JobKey, state: str = "") -> str:
    """Why there is no command for a job, or none for one in this state, in words that follow what was asked for."""
    reasons = {Origin.HISTORY: "only its history is left", Origin.HERE: "it is on this machine, not on a cluster"}
    return f"not possible for {key.name}: {f'it is {state}' if state else reasons[key.origin]}"


def told_act(act: Act) -> str:
    """What a key does, in words: `ddpjob suspend NAME; on this machine: ddpjob stop NAME`."""
    there, here = (" ".join(words).format(name="NAME", given="N") for words in (act.there, act.here))
    return f"ddpjob {there}" + (f"; on this machine: ddpjob {here}" if here not in {"", there} else "")


def carried_out(words: Sequence[str]) -> tuple[bool, str]:
    """Whether a command that needs no terminal succeeded, and what it said."""
    try:
        ended = subprocess.run(
            [*OURSELVES, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=ANSWER_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"no answer for {ANSWER_SECONDS:.0f} s"
    return ended.returncode == 0, (ended.stdout + ended.stderr).strip()[:LONGEST]


def watched(words: Sequence[str]) -> None:
    """Runs a command in this terminal until it ends or the user presses Ctrl-C, and then waits for Enter."""
    print(f"$ ddpjob {' '.join(words)}", flush=True)
    # Ctrl-C is for the command. A handler, unlike SIG_IGN, is not inherited by it.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        subprocess.run([*OURSELVES, *words], check=False)
        with contextlib.suppress(EOFError):
            input("Press Enter to go back. ")
    finally:
        signal.signal(signal.SIGINT, before)


# -P: no module beside the user's scripts, such as a types.py, is taken for one of Python's.
OURSELVES = (sys.executable, "-P", "-c", "import sys; from ddpjob_operator.cli.main import main; sys.exit(main())")
"""The command itself, whichever way it was called."""
