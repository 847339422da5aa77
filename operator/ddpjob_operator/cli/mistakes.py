"""Recognizes commands and flags of kubectl, torchrun and similar tools, and shows what to type for ddpjob."""

import difflib
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise, takewhile

from .invocation import itself

OF_OTHERS = {
    **dict.fromkeys(("apply", "create"), "submit"),
    **dict.fromkeys(("get", "show"), "status"),
    "remove": "delete",
    "kill": "stop",
    **dict.fromkeys(("launch", "start", "train"), "run"),
    "list": "ls",
}
"""For each command of kubectl or another tool: ddpjob's command that does the same."""

SAME = {
    **dict.fromkeys(("nnodes", "num-machines", "num-nodes", "replicas"), "--nodes"),
    **dict.fromkeys(("num-processes", "gpus", "gpus-per-node"), "--procs-per-node"),
}
"""ddpjob's names for flags of torchrun, accelerate and kubectl. The keys lack leading dashes, and use `-` for `_`."""

OF_NODES = frozenset({"gpus", "gpus-per-node"})
"""Flags in SAME that `submit` and `hold` do not translate, because each node of a cluster has GPUs of its own."""

NEEDLESS = {
    **dict.fromkeys(("node-rank", "machine-rank", "master-addr", "master-port", "main-process-port", "rdzv-id"), 1),
    **dict.fromkeys(("rdzv-backend", "rdzv-endpoint", "rdzv-conf"), 1),
    **dict.fromkeys(("standalone", "multi-gpu"), 0),
}
"""Flags that nobody needs to give, because ddpjob sets their values itself, and how many words follow each flag."""

LEFT_OUT = {
    "-f": "give the file's name alone",
    "--filename": "give the file's name alone",
    "-c": "the only logs are those of the container trainer",
    "--container": "the only logs are those of the container trainer",
    "--all": "name each of them",
    "--env-from": "on this machine ranks have the variables of your shell",
    "--force": "nothing here needs it",
    "-r": "nothing here needs it",
    "-rf": "nothing here needs it",
}
"""Flags of other tools without a counterpart in ddpjob, and why they are not needed."""

CLUSTERS = re.compile(
    r"(?P<flag>-n|-A|--namespace|--all-namespaces|--cluster|--context|--kubeconfig)(?:=.*)?|-n[0-9]+"
)
MACHINES = re.compile(r"(?P<flag>--local|--run-dir|--attach)(?:=.*)?")
"""CLUSTERS matches flags for a cluster, MACHINES flags for this machine."""

ON_A_CLUSTER = {
    "run": "on a cluster: {ddpjob} submit",
    "init": "",
    "validate": "on a cluster: {ddpjob} submit --dry-run",
    "report": "copy the job's checkpoint directory here, and name that",
    "export": "run it in a pod that mounts the volume of the checkpoints, or name their URL",
    "ls": "on a cluster: {ddpjob} status",
    "stop": "on a cluster: {ddpjob} suspend",
    "rm": "on a cluster: {ddpjob} delete",
    "completion": "",
}
"""For each command that works only on this machine: the equivalent on a cluster."""
ON_THIS_MACHINE = {
    "submit": "on this machine: {ddpjob} run",
    "hold": "on this machine nothing needs to be held: {ddpjob} run",
    "version": "this command's own version: {ddpjob} version --client",
    **dict.fromkeys(("cancel", "suspend"), "on this machine: {ddpjob} stop"),
    "resume": "on this machine: {ddpjob} run --resume",
    "scale": "on this machine: {ddpjob} stop, and run again with --nodes",
}
"""For each command that works only on clusters: the equivalent on this machine."""

KINDS = frozenset({"ddp", "ddpjob", "ddpjobs", "job", "jobs"})
"""Resource kinds that a user of kubectl may put before a job's name."""

A_NUMBER = re.compile(r"[0-9]{1,9}")
SIZED = frozenset({"run", "init"})
"""Commands for this machine that take numbers of nodes and processes."""

OF_RUNS = frozenset({"rm", "stop"})
"""Commands for runs on this machine, which take several names."""

READS_HISTORIES = frozenset({"ls", "report"})
"""Commands for this machine that take flags of a cluster with --history, which may be on a volume claim."""

PROGRAMS = frozenset({"accelerate", "bash", "python", "python3", "sh", "torchrun"})
"""Programs that a user may name where ddpjob expects a script."""

FILES = (".yaml", ".yml", ".json")

AS_STARTED = "cannot be given with --resume, which continues a run as it was started"


def unknown_command(word: str, known: Collection[str], rest: Sequence[str]) -> str:
    """The message for a first word that is not a command."""
    if word.startswith("-") and rest:
        command = next((other for other in rest if other in known), "run")
        others = (other for other in (word, *rest) if other != command)
        return f"the command comes first: {_line(command, *others)}"
    if word.endswith((".py", *FILES)):
        return f"there is no command {word}; to run it: {_line('run', word, *rest)}"
    if word.startswith("-"):
        return f"unrecognized arguments: {word}; see: {itself()} help"
    close = [OF_OTHERS[word]] if word in OF_OTHERS else difflib.get_close_matches(word, known)
    return f"there is no command {word}; " + (f"did you mean {close[0]}?" if close else f"see: {itself()} help")


def kubectl_name(words: Sequence[str]) -> str | None:
    """The message if the user names the job as for kubectl, `ddp/digits` or `ddp digits`; otherwise None."""
    command, *rest = words
    if command in OF_RUNS:
        # These commands take several names, so a first word such as `job` may be the name of a run.
        return None
    kind, slash, name = (rest or [""])[0].partition("/")
    own = [name, *rest[1:]] if slash else rest[1:]
    if kind not in KINDS or not own or own[0].startswith("-"):
        return None
    return f"kubectl takes a kind and a name, ddpjob only the job's name: {_line(command, *own)}"


def elsewhere(words: Sequence[str]) -> str | None:
    """The message if a command for this machine has a flag for clusters, or vice versa; otherwise None."""
    command, *rest = words
    here, there, flags, counterparts = (
        ("a cluster", "this machine", MACHINES, ON_THIS_MACHINE)
        if command in ON_THIS_MACHINE
        else ("this machine", "a cluster", CLUSTERS, ON_A_CLUSTER)
    )
    of_history = command in READS_HISTORIES and any(word.partition("=")[0] == "--history" for word in rest)
    if command not in counterparts or of_history or runs_on_a_hold(words):
        return None
    for word, following in pairwise([*takewhile(lambda word: word not in PROGRAMS, rest), ""]):
        if not (found := flags.fullmatch(word)):
            continue
        number = word.removeprefix("-n").removeprefix("=") or following
        if word.startswith("-n") and A_NUMBER.fullmatch(number) and command in SIZED:
            return (
                f"-n is a namespace of a cluster, and {command} uses none:"
                f" for processes give --procs-per-node {number}, for nodes --nodes {number}"
            )
        instead = counterparts[command].format(ddpjob=itself())
        return f"{found['flag'] or '-n'} is for {there}, but {command} is for {here}{instead and f'; {instead}'}"
    return None


def runs_on_a_hold(words: Sequence[str]) -> bool:
    """Whether the command is `run --on`, which is for a cluster."""
    return words[0] == "run" and any(word.partition("=")[0] == "--on" for word in words)


def unknown_arguments(
    words: Sequence[str], unknown: Sequence[str], target: str | None, program: Sequence[str] | None
) -> str:
    """The message for arguments that argparse did not recognize.

    `words` are all words of the command line, `unknown` the unrecognized ones, `target` the script or file to run,
    and `program` the words after `--`.
    """
    after, listed = program or [], " ".join(unknown)
    if target in PROGRAMS:
        at = words.index(target)
        right = _line(*words[:at], "--", *words[at:], *after)
        return f"unrecognized arguments: {listed}; put a command after --, as in: {right}"
    for word in unknown:
        flag = word.partition("=")[0]
        if why := LEFT_OUT.get(flag):
            return f"unrecognized arguments: {listed}; leave out {flag}: {why}"
    if target is None:
        return f"unrecognized arguments: {listed}; see: {itself()} {words[0]} --help"
    script = next((word for word in (target, *unknown) if word.endswith(".py")), target)
    if script.endswith(FILES):
        return f"unrecognized arguments: {listed}; {script} says what to run: edit it instead"
    own = [word for word in words if word in {target, *unknown} and word != script]
    ours = [word for word in words if word not in {script, *own}]
    right = _line(*ours, script, "--", *own, *after)
    return f"unrecognized arguments: {' '.join(own)}; put the script's own arguments after --, as in: {right}"


def script_of_a_hold(name: str, unknown: Sequence[str]) -> str:
    """The message for a script among the words of `hold`; empty if there is none.

    `name` is given as the job's, and `unknown` are the unrecognized words.
    """
    script = next((word for word in (name, *unknown) if word.endswith(".py")), None)
    if script is None:
        return ""
    job = "NAME" if name == script else name
    first, then = f"{itself()} hold {job}", f"{itself()} run --on {job} {script}"
    return f"a hold has no program: it runs those that are sent to it. Hold nodes with: {first}; and then: {then}"


def not_with_resume(words: Sequence[str], ours: Sequence[str], unknown: Sequence[str], target: str | None) -> str:
    """The message for unrecognized arguments beside --resume. `target` may be the value of an unknown flag."""
    wrong = (word for word in words if word not in ours or word in {*unknown, target})
    return f"{' '.join(wrong)} {AS_STARTED}"


def foreign_flags(words: Sequence[str], ours: Sequence[str], program: Sequence[str] | None) -> str:
    """The message for flags of other tools; `ours` is the command line with ddpjob's flags in their place."""
    foreign = [word for word in words if word not in ours]
    right = _line(*ours, *(["--", *program] if program is not None else []))
    return f"unrecognized arguments: {' '.join(foreign)}; with ddpjob it is: {right}"


def with_our_flags(words: Sequence[str]) -> list[str]:
    """A command line with the flags of other tools replaced by ddpjob's or removed."""
    return [*_translated(words)]


def _translated(words: Sequence[str]) -> Iterator[str]:
    known = OF_NODES if words[:1] in (["submit"], ["hold"]) else ()
    same = {name: ours for name, ours in SAME.items() if name not in known}
    left = iter(words)
    for word in left:
        if word in PROGRAMS:  # The words from here on belong to that program.
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
    """A call of ddpjob, quoted for a shell."""
    return f"{itself()} {shlex.join(words)}"
