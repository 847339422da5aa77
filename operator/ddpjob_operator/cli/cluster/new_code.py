"""`ddpjob submit --replace --in-place`: gives a running job new code without new pods.

Rank 0's supervisor gets the code first, so that nothing has changed yet if it refuses. Then the job names the code:
from now on new pods have it, and supervisors never run older code than that of the newest pod. Only then the ranks
restart. If this command dies between any two steps, the same command completes the change. At last it waits for the
first step: if the new code fails before that, the job goes back to its former code.
"""

import argparse
import base64
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from ddpjob_operator.api import BadInputError, ConditionType, DDPJob
from ddpjob_operator.api.contract import CODE_KEY, CODE_VOLUME
from ddpjob_operator.api.option_names import in_python, option, this_call
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.client import ClusterError, Document, Jobs, as_job
from ddpjob_operator.client.code import DIGEST, Code, former_of
from ddpjob_operator.text import visible

from .change import unfinished
from .parcel import Parcel
from .pod_options import CODE_DIRECTORY, UNPACK_CONTAINER
from .talk import Talk, agreed

OF_THE_CODE = frozenset({"source", "source_registry", "include", "module", "name"})
"""The options that say which code is sent, and to which job."""

NAMED = 5
"""How many of the differences an error names."""


def replace_in_place(
    jobs: Jobs, parcel: Parcel, given: argparse.Namespace, options: tuple[str, ...], screen: Screen
) -> Document:
    """Replaces the code of a running job by that of the parcel. Returns the changed job.

    `options` are all options that describe a program.

    Raises:
        BadInputError: there is no such job, it cannot take new code in place, or more than the code would change.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    name = parcel.document["metadata"]["name"]
    found, job = unfinished(jobs, name)
    if parcel.code is None:
        raise BadInputError(
            f"{option('in-place')} replaces code that is sent in a ConfigMap: name a script, or a folder with"
            f" {option('source')}, and no registry"
        )
    _check_replaceable(job)
    _check_only_code_changes(
        found, parcel, [option for option in options if getattr(given, option) not in (None, [])]
    )
    data, wanted = base64.b64decode(parcel.code["binaryData"][CODE_KEY]), parcel.code["metadata"]["name"]
    digest = parcel.code["metadata"]["annotations"][DIGEST].partition(":")[2]
    failed = job.status.code.failed if job.status.code else None
    if failed and failed.digest == digest:  # Supervisors in pods that were made since then would not know.
        raise BadInputError(f"{name}: this code {visible(failed.message)}; change it, and try again")
    question = {"kind": "ReplaceCode", "digest": digest}
    with agreed(jobs, found, question, data, _check_replaceable) as (talk, ready):
        store = Code(jobs.cluster)
        store.own(parcel.code, found)
        former, annotations = former_of(found, str(ready.get("former"))), parcel.document["metadata"]["annotations"]
        changed = jobs.replace_code(found, wanted, former, annotations)
        again = f"{name} names the new code now, but its ranks may still run the old one; repeat {this_call()}"
        try:
            answer = talk.ask("Apply", revision=changed["spec"]["code"]["revision"])
        except ClusterError as error:
            raise ClusterError(f"{again}: {error}") from None
        if answer["kind"] != "Begun":
            raise ClusterError(f"{again}: {answer.get('why')}")
        screen.print(f"{name}: attempt {answer['attempt']} runs the new code {digest[:12]}, in the same pods")
        with suppress(BadInputError, ClusterError):  # If this fails, the next client cleans up.
            runs = former_of(found, str(answer.get("former", ready.get("former"))))
            if runs != former:  # What ran has finished its first step, or failed before it, since Ready.
                changed = jobs.replace_code(changed, wanted, runs, annotations)
            store.release(changed)
        _await_first_step(talk, name, screen)
    return changed


def _await_first_step(talk: Talk, name: str, screen: Screen) -> None:
    """Waits until the new code has finished a step. After Ctrl-C, the job goes on without us.

    Raises:
        BadInputError: it has failed before, and the former code runs again.
        KeyboardInterrupt: somebody has pressed Ctrl-C, and a program in Python has called us.
    """
    screen.print("Waiting for its first step, or a minute if it reports none; Ctrl-C leaves it to the job")
    try:
        tried = talk.outcome("Tried")
    except KeyboardInterrupt:
        screen.print(f"\n{name} goes on; look at it: {itself()} status {name}")
        if in_python():  # A program is not to go on as if nobody had pressed Ctrl-C.
            raise
        return
    except ClusterError as error:  # Rank 0's pod is lost, or its image is of an older release.
        screen.print(f"Cannot see its first step ({error}); look at it: {itself()} status {name}")
        return
    if failed := tried.get("failed"):
        raise BadInputError(
            f"the new code {visible(str(failed))}. {name} trains on with its former code; correct the new code, and"
            f" repeat {this_call()}"
        )
    screen.print("The new code stays")


def _check_replaceable(job: DDPJob | None) -> None:
    """Checks that supervisors run the code that was sent with a job.

    Raises:
        BadInputError: they do not, or the job has ended.
    """
    if job is None or job.status.finished:
        raise BadInputError("the job has ended meanwhile, so its code was not replaced")
    spec, trainer = job.spec, job.spec.trainer
    words = [*(trainer.get("command") or ()), *(trainer.get("args") or ())]
    mounted = any(mount["name"] == CODE_VOLUME for mount in trainer.get("volumeMounts", ()))
    for fails, why in (
        (spec.held, "it is held: run other code with ddpjob run --on"),
        (spec.supervisor is None, "its command does not start ddpjob-supervise, which restarts ranks in place"),
        (spec.suspend, "it is suspended, and has no pods"),
        ("--preload" in words, "its command imports modules before the ranks start (--preload)"),
        (
            not mounted or trainer.get("workingDir") != CODE_DIRECTORY,
            "its code is in its image, or was sent by an older release",
        ),
        (
            job.status.is_true(ConditionType.RUNNING)
            and job.status.bookkeeping.supervised
            and job.status.code is None,
            "its supervisors report no code, so its image is of an older release",
        ),
    ):
        if fails:
            raise BadInputError(
                f"the code of {job.metadata.name} cannot be replaced in place: {why}. Leave out {option('in-place')}"
            )


def _check_only_code_changes(found: Document, parcel: Parcel, given: list[str]) -> None:
    """Checks that the arguments describe the job as it is; options that are not given stay as they are.

    Raises:
        BadInputError: they describe another size, other arguments, another image, and so on.
    """
    before, after = (_without_code(as_job(job).spec.to_dict()) for job in (found, parcel.document))
    different = [*_differences(before, after)]
    if not {*given} - OF_THE_CODE:  # Then only the program is described, and not even all of its arguments.
        different = [path for path in different if path.startswith(COMMAND)]
    if different:
        different = [*dict.fromkeys(map(_in_words, different))]
        more = f" and {len(different) - NAMED} more" if len(different) > NAMED else ""
        raise BadInputError(
            f"with {option('in-place')} only the code of {found['metadata']['name']} can change, but so would"
            f" {', '.join(different[:NAMED])}{more}. Give the arguments and options that the job has, or none; or"
            f" leave out {option('in-place')}, and the job gets new pods"
        )


COMMAND = "template.spec.containers[0].command"
TRAINER = "template.spec.containers[0]"

WORDS: dict[str, tuple[str, ...]] = {
    COMMAND: ("the program",),
    f"{TRAINER}.args": ("its arguments",),
    f"{TRAINER}.env": ("its variables or packages", "env", "pip"),
    f"{TRAINER}.image": ("its image", "image"),
    f"{TRAINER}.resources": ("its GPUs, CPUs or memory", "gpus-per-node", "cpu", "memory"),
    "nodes": ("its nodes", "nodes"),
    "procsPerNode": ("its processes", "procs-per-node"),
    "checkpoint": ("its checkpoints", "checkpoint"),
    "history": ("its history", "history"),
    "restart": ("its restarts", "max-restarts"),
}
"""What messages call the fields that arguments set, and the options that set them."""


def _in_words(path: str) -> str:
    """What a path is called, which users do not know; the path itself if it has no other name."""
    for field, (words, *options) in WORDS.items():
        if path == field or path.startswith((f"{field}.", f"{field}[")):
            return f"{words} ({', '.join(map(option, options))})" if options else words
    return path


def _without_code(spec: dict[str, Any]) -> dict[str, Any]:
    copy = deepcopy(spec)
    copy.pop("code", None)
    pod = copy["template"]["spec"]
    unpacking = (container for container in pod.get("initContainers", ()) if container["name"] == UNPACK_CONTAINER)
    for container in unpacking:  # How pods unpack code may differ between releases.
        container.pop("command", None)
    pod["volumes"] = [
        {"name": CODE_VOLUME} if volume["name"] == CODE_VOLUME else volume for volume in pod.get("volumes", ())
    ]
    return copy


def _differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields that differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(*pair, f"{path}[{number}]")
    elif before != after:
        yield path
