"""What people who know kubectl, torchrun and others type, and what to type here instead."""

import difflib
import shlex
from collections.abc import Collection, Iterator, Sequence

from .invocation import itself

OF_OTHERS = {
    **dict.fromkeys(("apply", "create"), "submit"),
    **dict.fromkeys(("get", "describe", "top"), "status"),
    "remove": "delete",
    **dict.fromkeys(("cancel", "kill"), "stop"),
    **dict.fromkeys(("launch", "start", "train"), "run"),
    "list": "ls",
}
"""What kubectl and others call our commands."""

SAME = {
    **dict.fromkeys(("nnodes", "num-machines", "num-nodes", "replicas"), "--nodes"),
    **dict.fromkeys(("nproc-per-node", "num-processes", "gpus", "gpus-per-node"), "--procs-per-node"),
}
"""Flags of torchrun, accelerate and kubectl with other names here, without leading dashes and with `-` for `_`."""

OF_NODES = frozenset({"gpus", "gpus-per-node"})
"""Those that `submit` takes as they are: on a cluster nodes have GPUs of their own."""

NEEDLESS = {
    **dict.fromkeys(("node-rank", "machine-rank", "master-addr", "master-port", "main-process-port", "rdzv-id"), 1),
    **dict.fromkeys(("rdzv-backend", "rdzv-endpoint", "rdzv-conf"), 1),
    **dict.fromkeys(("standalone", "multi-gpu"), 0),
}
"""Those that each rank is told automatically here, and how many words follow them."""

LEFT_OUT = {
    "-f": "name the file without it",
    "--filename": "name the file without it",
    "-c": "the only logs are those of the container trainer",
    "--container": "the only logs are those of the container trainer",
    "--all": "name each of them",
    "--force": "nothing here needs it",
    "-r": "nothing here needs it",
    "-rf": "nothing here needs it",
}
"""Flags that do not exist here at all, and why."""

KINDS = frozenset({"ddp", "ddpjob", "ddpjobs", "job", "jobs"})
"""What kubectl expects before a name."""

OF_RUNS = frozenset({"rm", "stop"})
"""Commands for runs on this machine, which take several names."""

PROGRAMS = frozenset({"accelerate", "bash", "python", "python3", "sh", "torchrun"})
"""What a person may write in place of a script."""

FILES = (".yaml", ".yml", ".json")


def of_command(word: str, known: Collection[str], rest: Sequence[str]) -> str:
    """What to say about a first word that is not a command."""
    if word.startswith("-") and rest:
        command = next((one for one in rest if one in known), "run")
        others = (one for one in (word, *rest) if one != command)
        return f"the command comes first: {_line(command, *others)}"
    if word.endswith((".py", *FILES)):
        return f"there is no command {word}; to run it: {_line('run', word, *rest)}"
    if word.startswith("-"):
        return f"unrecognized arguments: {word}; see: {itself()} help"
    close = [OF_OTHERS[word]] if word in OF_OTHERS else difflib.get_close_matches(word, known, n=1)
    return f"there is no command {word}; " + (f"did you mean {close[0]}?" if close else f"see: {itself()} help")


def of_names(words: Sequence[str]) -> str | None:
    """What to say if a job is named as for kubectl: `ddp/digits` or `ddp digits`."""
    command, *rest = words
    if command in OF_RUNS:  # A run has no kind before it, but several runs may be named.
        return None
    kind, slash, name = (rest or [""])[0].partition("/")
    own = [name, *rest[1:]] if slash else rest[1:]
    if kind not in KINDS or not own or own[0].startswith("-"):
        return None
    return f"kubectl takes a kind and a name, ddpjob only the job's name: {_line(command, *own)}"


def of_words(words: Sequence[str], unknown: Sequence[str], target: str | None, program: Sequence[str] | None) -> str:
    """What to say about a command's words if some are not its own; `target` and `program` are what it runs."""
    after, said = program or [], " ".join(unknown)
    if target in PROGRAMS:
        at = words.index(target)
        right = _line(*words[:at], "--", *words[at:], *after)
        return f"unrecognized arguments: {said}; a command goes after --: {right}"
    for word in unknown:
        if why := LEFT_OUT.get(word.partition("=")[0]):
            return f"unrecognized arguments: {said}; leave it out: {why}"
    if target is None:
        return f"unrecognized arguments: {said}; see: {itself()} {words[0]} --help"
    script = next((word for word in (target, *unknown) if word.endswith(".py")), target)
    if script.endswith(FILES):
        return f"unrecognized arguments: {said}; {script} says what to run: edit it instead"
    own = [word for word in words if word in {target, *unknown} and word != script]
    ours = [word for word in words if word not in {script, *own}]
    right = _line(*ours, script, "--", *own, *after)
    return f"unrecognized arguments: {' '.join(own)}; the script's own go after --: {right}"


def of_foreign(words: Sequence[str], ours: Sequence[str], program: Sequence[str] | None) -> str:
    """What to say about words that correspond to `ours`."""
    foreign = [word for word in words if word not in ours]
    right = _line(*ours, *(["--", *program] if program is not None else []))
    return f"unrecognized arguments: {' '.join(foreign)}; with ddpjob it is: {right}"


def in_our_words(words: Sequence[str]) -> list[str]:
    """The same without the flags of others."""
    return [*_translated(words)]


def _translated(words: Sequence[str]) -> Iterator[str]:
    known = OF_NODES if words[:1] == ["submit"] else ()
    same = {name: ours for name, ours in SAME.items() if name not in known}
    left = iter(words)
    for word in left:
        if word in PROGRAMS:  # From here on they are its own.
            yield from (word, *left)
            return
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-").replace("_", "-") if flag.startswith("--") else ""
        if name in NEEDLESS:
            for _ in range(0 if equals else NEEDLESS[name]):
                next(left, None)
        else:
            yield f"{same[name]}{equals}{value}" if name in same else word


def _line(*words: str) -> str:
    """A line that can be typed as it is."""
    return f"{itself()} {shlex.join(words)}"
