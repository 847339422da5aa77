"""The subcommands of `ddpjob` and their arguments, with kubectl's names where kubectl has the same argument.

This module imports nothing slow, so that help appears immediately.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from ddpjob_operator.text import visible

from . import completion, mistakes
from .durations import seconds_of
from .help import EXAMPLES, Formatter, Overview, examples, overview
from .invocation import called_by_kubectl

HIGHEST_PORT = 65535
IDLE_SECONDS = 1800
"""How long a job is held without a program, by default."""

END_OF_OPTIONS = "--"
OF_ITSELF = frozenset({"-h", "--help", "--version"})
"""Options of `ddpjob` itself, accepted in place of a command."""
RUNS_A_PROGRAM = frozenset({"run", "init", "submit"})
"""Commands that accept `--` and a program's own arguments after their options."""
TAKES_A_COMMAND = frozenset({*RUNS_A_PROGRAM, "debug"})
"""Commands after whose `--` nothing is an option of ours."""

OF_A_PROGRAM = (
    "%(prog)s [options] {SCRIPT | -m MODULE} [-- ARGUMENT ...]\n       %(prog)s [options] -- COMMAND [ARGUMENT ...]"
)
"""Usage of the commands in RUNS_A_PROGRAM."""

COMPLETION = """\
Print a script with which a shell completes commands, flags and names of jobs.

  bash:  echo 'source <(ddpjob completion bash)' >> ~/.bashrc
  zsh:   echo 'source <(ddpjob completion zsh)' >> ~/.zshrc
  fish:  ddpjob completion fish > ~/.config/fish/completions/ddpjob.fish"""


def parse(words: list[str]) -> argparse.Namespace:
    """Parses a command line. In the result, `program` holds the words after `--`, or None if there is no `--`.

    Wrong arguments end the process with exit code 2.
    """
    top, program = parser("kubectl ddpjob" if called_by_kubectl() else "ddpjob"), None
    completion.answer(top)
    if words[:1] and words[0] in TAKES_A_COMMAND and END_OF_OPTIONS in words:
        end = words.index(END_OF_OPTIONS)
        words, program = words[:end], words[end + 1 :]
    if not words or words[0] == "help":
        words = [*words[1:2], "--help"]
    if words[0] not in MEANINGS and words[0] not in OF_ITSELF:
        _refuse(mistakes.unknown_command(words[0], MEANINGS, words[1:]))
    if words[0] not in RUNS_A_PROGRAM and (problem := mistakes.kubectl_name(words)):
        _refuse(problem)
    if problem := mistakes.elsewhere(words):
        _refuse(problem)
    if mistakes.runs_on_a_hold(words):  # `run` itself has no -n, which would take a script's -nr for a namespace.
        words = ["--namespace" if word == "-n" else word for word in words]
    ours = mistakes.with_our_flags(words)
    arguments, unknown = top.parse_known_args(ours)
    arguments.program = program
    target = arguments.target if arguments.command in RUNS_A_PROGRAM else None
    if getattr(arguments, "resume", None) is not None and (unknown or ours != words):
        _refuse(mistakes.not_with_resume(words, ours, unknown, target))
    if arguments.command == "hold" and (problem := mistakes.script_of_a_hold(arguments.name, unknown)):
        _refuse(problem)
    if unknown:
        _refuse(mistakes.unknown_arguments(ours, unknown, target, program))
    if ours != words:
        _refuse(mistakes.foreign_flags(words, ours, program))
    return arguments


def _refuse(message: str) -> NoReturn:
    print(f"error: {visible(message)}", file=sys.stderr)
    sys.exit(2)


class _Parser(argparse.ArgumentParser):
    """A parser that prints errors as one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Prints `message` and exits with code 2."""
        _refuse(f"{message}; see: {self.prog} --help")


def parser(prog: str = "ddpjob") -> argparse.ArgumentParser:
    """The parser of all commands and their arguments."""
    meanings = {name: meaning for name, (meaning, _) in MEANINGS.items()}
    purpose = "Run PyTorch DistributedDataParallel training: all ranks start, stop and restart together."
    top = _Parser(prog=prog, description=f"{purpose}\n\n{overview(meanings)}", formatter_class=Overview)
    top.add_argument("--version", action="version", version=f"ddpjob {version('ddpjob')}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (meaning, add_arguments) in MEANINGS.items():
        command = commands.add_parser(name, help=meaning, formatter_class=Formatter)
        command.description = f"{meaning[0].upper()}{meaning[1:]}."
        command.epilog = examples(name) if name in EXAMPLES else None
        add_arguments(command)
    return top


def _run(command: argparse.ArgumentParser) -> None:
    command.usage = f"{OF_A_PROGRAM}\n       %(prog)s FILE\n       %(prog)s --resume NAME"
    command.usage += "\n       %(prog)s --on JOB [options] {SCRIPT | -m MODULE} [-- ARGUMENT ...]"
    _program(command, "SCRIPT|FILE", "Python script, or YAML file with one DDPJob")
    resume = command.add_argument("--resume", type=_given, metavar="NAME", help="go on with the run of this name")
    resume.completer = completion.runs  # type: ignore[attr-defined]
    command.add_argument(
        "--fresh",
        action="store_true",
        help="forget an earlier run of this job, and the checkpoints in its run directory",
    )
    command.add_argument(
        "-d",
        "--detach",
        action="store_true",
        help="return as soon as the job is running; it goes on without this terminal",
    )
    command.add_argument(
        "--attach",
        type=_whole,
        metavar="RANK",
        help="give this rank the terminal, for breakpoint() and input(); no rank is restarted, or ended as stalled",
    )
    command.add_argument("--dry-run", action="store_true", help="check the job, but start nothing")
    command.add_argument(
        "-o", "--output", choices=["yaml", "json"], help="with --dry-run: print the DDPJob that would run"
    )
    _machine(command)
    on = command.add_argument_group("on held nodes")
    held = on.add_argument(
        "--on",
        type=_given,
        metavar="JOB",
        help="run on the nodes that ddpjob hold JOB holds; Ctrl-C lets the ranks save and end, and keeps the pods",
    )
    held.completer = completion.jobs  # type: ignore[attr-defined]
    on.add_argument(
        "--watch",
        action="store_true",
        default=None,
        help="with --on: run again at each save of a file that is sent, until Ctrl-C",
    )
    _sent(on)
    _installed(on)
    _cluster(command, "--namespace")


def _init(command: argparse.ArgumentParser) -> None:
    command.usage = OF_A_PROGRAM
    _program(command, "SCRIPT", "Python script")
    command.add_argument(
        "-o", "--output", type=_path, metavar="FILE", help="the file to write (default: the job's name plus .yaml)"
    )


def _export(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directory",
        type=_given,
        metavar="CHECKPOINT_DIR",
        help="a checkpoint directory or its URL (its newest checkpoint is read), or one checkpoint in it",
    )
    command.add_argument(
        "-o",
        "--output",
        type=_path,
        required=True,
        metavar="FILE",
        help="the file to write; an existing one is replaced",
    )
    command.add_argument(
        "--thing", default="model", metavar="NAME", help="the name under which the weights are saved (default: model)"
    )


def _validate(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "files", type=_path, nargs="+", metavar="FILE", help="YAML file with one DDPJob; - means standard input"
    )


def _program(command: argparse.ArgumentParser, target: str, meaning: str) -> None:
    """Adds the arguments that describe a job without a YAML file."""
    command.add_argument("target", nargs="?", metavar=target, help=meaning)
    _processes(command, "1")
    command.add_argument(
        "--nodes", type=_whole, metavar="N", help="how many nodes, each with --procs-per-node processes (default: 1)"
    )
    command.add_argument(
        "--name", metavar="NAME", help="the job's name (default: a new name, made from the script's)"
    )
    _how(command)
    command.add_argument(
        "--checkpoint",
        type=_given,
        metavar="DIR|URL",
        help="directory for checkpoints, or a URL such as s3://BUCKET/PATH; ranks find it in DDPJOB_CHECKPOINT_DIR"
        " (default: a directory of the run)",
    )
    _keeps(command)


def _processes(command: argparse._ActionsContainer, default: str) -> None:
    """Adds the option for the number of processes, under our name and under torchrun's."""
    command.add_argument(
        *("--procs-per-node", "--nproc-per-node", "--nproc_per_node"),
        type=_whole,
        metavar="N",
        help=f"training processes per node (default: {default})",
    )


def _how(command: argparse._ActionsContainer) -> None:
    """Adds the options that `run`, `init` and `submit` share."""
    command.add_argument("-m", "--module", metavar="MODULE", help="run this Python module instead of a script")
    _env(command)
    command.add_argument(
        "--max-restarts", type=_whole, metavar="N", help="restarts before the job fails (default: 6)"
    )
    command.add_argument(
        "--start-method",
        choices=["warm", "cold"],
        help="warm: fork ranks from a process that has imported torch; cold: start each rank separately"
        " (default: warm, unless the script computes a variable that torch reads when it is imported)",
    )


def _env(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the ranks (can be repeated)"
    )


def _keeps(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--history",
        type=_given,
        metavar="DIR|URL|off",
        help="keep logs, incidents and progress in this directory or at this URL, for when the pods are gone; off:"
        " keep none (default: on a cluster, beside the checkpoints, if these outlive the pods)",
    )


def _submit(command: argparse.ArgumentParser) -> None:
    command.usage = f"{OF_A_PROGRAM}\n       %(prog)s {{FILE | -f FILE}}"
    command.add_argument(
        "target",
        nargs="?",
        metavar="SCRIPT|FILE",
        help="Python script, or YAML file with one DDPJob; - means standard input",
    )
    command.add_argument(
        "-f", "--filename", type=_path, dest="file_too", metavar="FILE", help="YAML file, as for kubectl"
    )
    program = command.add_argument_group("program")
    _how(program)
    _size(program)
    program.add_argument("--name", metavar="NAME", help="the job's name (default: after the script)")
    _sent(program)
    program.add_argument(
        "--source-registry",
        type=_given,
        metavar="REPOSITORY",
        help="send the code through this repository of images, such as registry.example.com/team/code: up to 64 MiB;"
        " Kubernetes 1.35 or later (default: in a ConfigMap, up to 1 MiB)",
    )
    _pods(program)
    command.add_argument(
        "--replace", action="store_true", help="if the job exists: suspend it, change it and resume it"
    )
    command.add_argument(
        "--in-place",
        action="store_true",
        help="with --replace: only the code changes, and the ranks restart from the checkpoint in the same pods",
    )
    command.add_argument("--wait", action="store_true", help="show what happens to the job until it ends")
    _dry_run(command)
    _cluster(command)


def _hold(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", type=_given, metavar="NAME", help="the job's name")
    command.set_defaults(target=None, module=None, program=None, source=None, include=[], max_restarts=None)
    command.set_defaults(source_registry=None)
    command.set_defaults(start_method=None, replace=False, in_place=False)
    limits = command.add_argument_group("limits")
    limits.add_argument(
        "--idle-timeout",
        type=_seconds,
        default=IDLE_SECONDS,
        metavar="DURATION",
        help="end when no program has run for this long (default: 30m)",
    )
    limits.add_argument("--deadline", type=_seconds, metavar="DURATION", help="end after this time, whatever runs")
    pods = command.add_argument_group("pods")
    _env(pods)
    _size(pods)
    _pods(pods)
    _dry_run(command)
    _cluster(command)


def _dry_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dry-run", action="store_true", help="let the API server check the job, but create nothing"
    )
    command.add_argument(
        "-o", "--output", choices=["yaml", "json"], help="with --dry-run: print what would be created"
    )


def _size(program: argparse._ActionsContainer) -> None:
    program.add_argument(
        "--env-from",
        action="append",
        default=[],
        metavar="SECRET",
        help="a Secret whose keys become variables for the ranks, such as the credentials of an object store (can be"
        " repeated)",
    )
    program.add_argument("--nodes", type=_whole, metavar="N", help="how many nodes (default: 1)")
    program.add_argument("--gpus-per-node", type=_whole, metavar="N", help="GPUs per node (default: none)")
    _processes(program, "one per GPU, else 1")


def _sent(program: argparse._ActionsContainer) -> None:
    """Adds the options that choose the files to send to a cluster."""
    program.add_argument(
        "--source", type=_path, metavar="DIR", help="send this folder, except for what its .gitignore excludes"
    )
    program.add_argument(
        "--include",
        action="append",
        default=[],
        type=_path,
        metavar="FILE",
        help="send this file of the folder too, whatever its name and contents look like (can be repeated)",
    )


def _installed(program: argparse._ActionsContainer) -> None:
    """Adds the options that name packages to install on a cluster."""
    program.add_argument(
        "--pip",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="a package to install in addition to those of the image, such as 'einops>=0.8' (can be repeated)",
    )
    program.add_argument(
        "-r",
        "--requirements",
        type=_path,
        metavar="FILE",
        help="install the packages that this requirements file lists",
    )


def _pods(program: argparse._ActionsContainer) -> None:
    """Adds the options for the pods of `submit` and `hold`."""
    _installed(program)
    program.add_argument("--image", metavar="IMAGE", help="the pods' image (default: the administrator's choice)")
    program.add_argument("--cpu", metavar="QUANTITY", help="CPUs per node, such as 4 or 500m")
    program.add_argument("--memory", metavar="QUANTITY", help="memory per node, such as 16Gi")
    program.add_argument(
        "--volume",
        action="append",
        default=[],
        metavar="CLAIM:/PATH",
        help="mount a PersistentVolumeClaim (can be repeated)",
    )
    program.add_argument(
        "--image-volume",
        action="append",
        default=[],
        metavar="IMAGE:/PATH",
        help="mount the files of an image; Kubernetes 1.35 or later (can be repeated)",
    )
    program.add_argument(
        "--checkpoint",
        metavar="CLAIM:/PATH|URL",
        help="save checkpoints on this PersistentVolumeClaim, or in an object store, such as s3://BUCKET/PATH; ranks"
        " find /PATH or the URL in DDPJOB_CHECKPOINT_DIR",
    )
    _keeps(program)
    program.add_argument("--queue", metavar="NAME", help="the Kueue queue that admits the job")
    program.add_argument(
        "--class",
        dest="class_name",
        metavar="CLASS",
        help="the class of the job, such as canary: only operators of this class run it",
    )


def _status(command: argparse.ArgumentParser) -> None:
    _named(command, "the job (default: all jobs, or the only one)", nargs="?")
    shown = command.add_mutually_exclusive_group()
    shown.add_argument(
        "-o",
        "--output",
        choices=["json", "wide"],
        help="json: print the whole object; wide: print all conditions, incidents and messages",
    )
    shown.add_argument(
        "-w", "--watch", action="store_true", help="print a line for each job, and another one whenever it changes"
    )
    shown.add_argument(
        "--stacks", action="store_true", help="print what each rank is doing now, and its Python stack"
    )
    command.add_argument("-A", "--all-namespaces", action="store_true", help="show the jobs of all namespaces")
    _history(command)
    _either(command)


def _describe(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show all that is known of a job: what status -o wide shows, its spec, what is by default, and its ranks."
    )
    _named(command, "the job")
    _either(command)


def _logs(command: argparse.ArgumentParser) -> None:
    _named(command, "the job (default: the only one)", nargs="?")
    of = command.add_mutually_exclusive_group()
    of.add_argument("--node", type=_whole, metavar="N", help="print only the log of this node")
    of.add_argument(
        "--rank",
        type=_whole,
        metavar="N",
        help="print only the log of this rank's node, which has the lines of its other ranks too",
    )
    command.add_argument("-f", "--follow", action="store_true", help="keep printing the log until the job ends")
    command.add_argument(
        "--tail", type=_tail, metavar="N", help="print only the last N lines of each node (default: all)"
    )
    command.add_argument(
        "--since",
        type=_seconds,
        metavar="DURATION",
        help="print only lines that are newer than this, such as 90s or 1h30m (cluster only)",
    )
    command.add_argument("--timestamps", action="store_true", help="print each line with its time (cluster only)")
    command.add_argument(
        "--raw", action="store_true", help="do not escape control characters, not even on a terminal"
    )
    attempt = command.add_mutually_exclusive_group()
    attempt.add_argument("-p", "--previous", action="store_true", help="print the logs of the previous attempt")
    attempt.add_argument(
        "--attempt", type=_whole, metavar="N", help="print the logs of this attempt, if they still exist"
    )
    _history(command)
    _either(command)


def _debug(command: argparse.ArgumentParser) -> None:
    command.usage = "%(prog)s [options] NAME [-- COMMAND [ARGUMENT ...]]"
    _named(command, "the job")
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--rank", type=_whole, metavar="N", help="the rank beside which to run the command (default: 0)"
    )
    what.add_argument("--node", type=_whole, metavar="N", help="the node on which to run the command")
    what.add_argument("--stacks", action="store_true", help="print what each rank is doing now, and its Python stack")
    _either(command)


def _whole(text: str) -> int:
    """A whole number. Its range is checked later, so that all problems of a job are reported together."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number, such as 2")
    return int(text)


def _given(text: str) -> str:
    """Refuses an empty argument, which a shell passes for a quoted variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _path(text: str) -> Path:
    return Path(_given(text))


def _named(
    command: argparse.ArgumentParser,
    meaning: str,
    names: completion.Names = completion.jobs,
    nargs: str | None = None,
) -> None:
    action = command.add_argument("name", type=_given, metavar="NAME", help=meaning, nargs=nargs)
    action.completer = names  # type: ignore[attr-defined]


def _each_named(command: argparse.ArgumentParser, meaning: str, names: completion.Names) -> None:
    action = command.add_argument("names", type=_given, metavar="NAME", help=meaning, nargs="+")
    action.completer = names  # type: ignore[attr-defined]


def _completion(command: argparse.ArgumentParser) -> None:
    command.description = COMPLETION
    command.add_argument("shell", choices=completion.SHELLS, help="the shell")


def _tail(text: str) -> int | None:
    """A number of lines; as in kubectl, -1 means all, returned as None."""
    if not re.fullmatch(r"-1|\d+", text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines; -1 means all")
    return None if text == "-1" else int(text)


def _seconds(text: str) -> int:
    """A duration in kubectl's notation, rounded up to whole seconds: the API accepts neither fractions nor 0."""
    try:
        return max(1, math.ceil(seconds_of(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _age(text: str) -> float:
    return float(text[:-1]) * 86400 if re.fullmatch(r"[0-9]{1,5}d", text) else float(_seconds(text))


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of jobs, such as 10")
    return int(text)


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port, such as 8000")
    return int(text)


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "name",
        nargs="?",
        metavar="RUN",
        help="a run on this machine, or a directory with a run's files, checkpoints or metrics",
    )
    command.add_argument("others", nargs="*", type=_given, metavar="OTHER", help="runs to compare with it, at most 4")
    command.add_argument(
        "--output",
        type=_path,
        metavar="FILE",
        help="the file to write (default: report.html in the run's directory;"
        " for several runs, comparison.html in the current directory)",
    )
    _history(command)
    _machine(command)
    _cluster(command, of_history=True)


def _ls(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List the runs of this user on this machine or, with --history, the jobs of which something is kept in a"
        " directory or at a URL."
    )
    command.add_argument(
        "name", nargs="?", type=_given, metavar="NAME", help="with --history: only the jobs of this name"
    )
    command.add_argument(
        "-o",
        "--output",
        choices=["wide", "json"],
        help="wide: more columns, and full directory names even on a narrow terminal; json: for programs",
    )
    command.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="list only the runs in this state, such as Running (can be repeated)",
    )
    _history(command, "list the jobs of which something is kept in this directory, or at this URL")
    _machine(command)
    _cluster(command, of_history=True)


def _top(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show all jobs on one screen: the runs on this machine and, if a kubeconfig names one, the jobs on a cluster."
    )
    command.add_argument("--once", action="store_true", help="print a line for each job, and end")
    _all_jobs(command, "show the jobs of which something is kept in this directory, or at this URL, instead")


def _dashboard(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show all jobs in a browser: the runs on this machine and, if a kubeconfig names one, the jobs on a cluster;"
        " or those of a history. Only this user's browser on this machine can see the page, with the printed address."
    )
    command.add_argument("--port", type=_port, default=0, metavar="N", help="listen on this port (default: any)")
    command.add_argument("--no-open", dest="open", action="store_false", help="print the address, open no browser")
    _all_jobs(command, "show what is kept of jobs in this directory, or at this URL; no cluster is needed")


def _all_jobs(command: argparse.ArgumentParser, of_history: str) -> None:
    """Adds the flags of commands that show all jobs: those here, those on a cluster, or those of a history."""
    command.add_argument("-A", "--all-namespaces", action="store_true", help="show the jobs of all namespaces")
    command.add_argument("--local", action="store_true", help="show only the runs on this machine")
    command.add_argument("--cluster", action="store_true", help="show only the jobs on the cluster")
    _history(command, of_history)
    _machine(command)
    _cluster(command)


def _prune(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Remove what is kept of old jobs in a directory or an object store. Only jobs that have succeeded or failed"
        " are removed, once nothing was written for a day or, after a failure, a week. Whatever else is there stays."
    )
    command.add_argument("name", nargs="?", type=_given, metavar="NAME", help="only jobs of this name (default: all)")
    command.add_argument(
        "--history", type=_given, required=True, metavar="DIR|URL", help="the directory or the URL of the histories"
    )
    command.add_argument("--keep", type=_count, metavar="N", help="remove all jobs of a name but the newest N")
    command.add_argument(
        "--older-than",
        type=_age,
        metavar="DURATION",
        help="remove jobs to which nothing was written for so long, such as 30d or 12h",
    )
    command.add_argument(
        "--max-size", type=_given, metavar="SIZE", help="remove the oldest jobs until the rest takes at most so much"
    )
    command.add_argument("--dry-run", action="store_true", help="remove nothing, and print what would be removed")


def _stop(command: argparse.ArgumentParser) -> None:
    _each_named(command, "a run (can be repeated)", completion.runs)
    _machine(command)


def _rm(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Remove runs on this machine that are not running: their directories, with the logs and the checkpoints in"
        " them. A directory or a URL that you have named with --checkpoint keeps its checkpoints."
    )
    _each_named(command, "a run (can be repeated)", completion.runs)
    _machine(command)


def _change(command: argparse.ArgumentParser) -> None:
    _named(command, "the job")
    _only_on_cluster(command)


def _scale(command: argparse.ArgumentParser) -> None:
    _named(command, "the job")
    command.add_argument(
        "--nodes", type=_whole, required=True, metavar="N", help="how many nodes the job should have"
    )
    _only_on_cluster(command)


def _checkpoint(command: argparse.ArgumentParser) -> None:
    _each_named(command, "a job (can be repeated)", completion.jobs)
    _wait(command, "wait until the checkpoint is complete (default: true)")
    _either(command)


def _cancel(command: argparse.ArgumentParser) -> None:
    _each_named(command, "a job (can be repeated)", completion.jobs)
    _only_on_cluster(command)


def _delete(command: argparse.ArgumentParser) -> None:
    _each_named(command, "a job (can be repeated)", completion.jobs)
    _wait(command, "wait until the job and all that it owns are gone (default: true)")
    _either(command)


def _wait(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--wait", choices=["true", "false"], nargs="?", const="true", default="true", help=text)


def _version(command: argparse.ArgumentParser) -> None:
    command.add_argument("--client", action="store_true", help="do not contact a cluster")
    _cluster(command)


def _history(command: argparse.ArgumentParser, meaning: str | None = None) -> None:
    """Adds the flags of commands that can also read what is kept of a job whose pods are gone."""
    flags = command.add_argument_group("history")
    of_a_job = (
        "read what was kept of the job in this directory, or at this URL; neither pods nor a cluster are needed"
    )
    flags.add_argument("--history", type=_given, metavar="DIR|URL", help=meaning or of_a_job)
    flags.add_argument(
        "--reader-image",
        type=_given,
        metavar="IMAGE",
        help="with --history pvc://CLAIM/PATH: the image, with Python, of the pod that reads the claim meanwhile"
        " (default: the job's, if it still exists)",
    )
    if meaning is None:
        flags.add_argument(
            "--uid",
            type=_given,
            metavar="UID",
            help="with --history: of several jobs of this name, the one whose uid begins with this",
        )


def _either(command: argparse.ArgumentParser) -> None:
    """Adds the flags of commands that work on this machine and on a cluster."""
    command.add_argument("--local", action="store_true", help="use the run on this machine")
    command.add_argument("--cluster", action="store_true", help="use the job on the cluster")
    _machine(command)
    _cluster(command)


def _only_on_cluster(command: argparse.ArgumentParser) -> None:
    """Adds the flags of commands for a cluster that, for a run on this machine, name the command to use instead."""
    command.add_argument("--cluster", action="store_true", help="use the job on the cluster, not a run of its name")
    _cluster(command)


def _machine(command: argparse.ArgumentParser) -> None:
    help_text = "where runs on this machine are kept (default: $DDPJOB_RUN_DIR or ddpjob-runs)"
    flags = command.add_argument_group("this machine")
    flags.add_argument("--run-dir", type=_path, metavar="DIR", help=help_text)


def _cluster(command: argparse.ArgumentParser, *namespace: str, of_history: bool = False) -> None:
    """Adds the flags that choose a cluster; with `of_history`, only to find a history on a volume claim.

    `namespace` are the names of the flag for the namespace, if these are not `-n` and `--namespace`.
    """
    flags = command.add_argument_group("cluster of a history" if of_history else "cluster")
    meaning = "the namespace (default: the context's)"
    if of_history:
        meaning = "with --history: the namespace (default: all; for pvc://CLAIM/PATH, the context's)"
    flags.add_argument(*(namespace or ("-n", "--namespace")), metavar="NAMESPACE", help=meaning)
    flags.add_argument("--context", metavar="NAME", help="the kubeconfig's context (default: its current one)")
    flags.add_argument(
        "--kubeconfig", type=_path, metavar="FILE", help="the kubeconfig (default: $KUBECONFIG or ~/.kube/config)"
    )


MEANINGS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("run a script, a module, a command or a DDPJob on this machine", _run),
    "init": ("write the DDPJob that runs a script into a YAML file", _init),
    "validate": ("check the DDPJobs of YAML files, and start nothing", _validate),
    "submit": ("run a DDPJob on a cluster", _submit),
    "hold": ("hold nodes of a cluster for programs of run --on", _hold),
    "status": ("show what a job is doing and why", _status),
    "describe": ("show all that is known of a job", _describe),
    "logs": ("print the ranks' output", _logs),
    "debug": ("open a shell in the container of a job's rank", _debug),
    "checkpoint": ("let jobs save a checkpoint now, and go on", _checkpoint),
    "report": ("write a report of a run as one HTML page", _report),
    "export": ("write the weights of a checkpoint into a safetensors file", _export),
    "ls": ("list the runs on this machine", _ls),
    "top": ("show all jobs on one screen", _top),
    "dashboard": ("show all jobs in a browser", _dashboard),
    "prune": ("remove what is kept of old jobs whose pods are gone", _prune),
    "stop": ("stop runs on this machine once they have saved, and keep them", _stop),
    "rm": ("remove runs on this machine, with their logs and checkpoints", _rm),
    "suspend": ("let a job on a cluster save and stop, without deleting it", _change),
    "resume": ("resume a suspended job on a cluster", _change),
    "scale": ("change the number of nodes of a job on a cluster", _scale),
    "cancel": ("end jobs on a cluster for good, and keep them with their logs", _cancel),
    "delete": ("delete jobs on a cluster with all that they own, or local runs", _delete),
    "completion": ("print a script that makes a shell complete commands and names", _completion),
    "version": ("print the versions of this command and of a cluster's operator", _version),
}
"""For each command: its help text and the function that adds its arguments."""
