"""Renders the page of a run: its facts, curves, incidents, checkpoints and settings."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import jinja2
from markupsafe import Markup

from ddpjob_operator.api import ConditionType, DDPJob, State
from ddpjob_operator.api.contract import TRAIN
from ddpjob_operator.api.git_state import GitState
from ddpjob_operator.api.words import counted, lasted, restarts, world
from ddpjob_operator.text import visible
from ddpjob_operator.view_model import STOPPED_ON_REQUEST, Interruption, Records, advice_on, interruptions_of

from . import figures
from .run_data import RunData
from .run_mask import masked

CHECKPOINTS = 10
"""Only this many of the latest checkpoints are listed."""

ENDS = {"succeeded": State.SUCCEEDED.value, "failed": State.FAILED.value, "stopped": "Stopped"}
"""The words for the results of `ended` events."""
REACHED = ("progress", "evaluated", "saved", "finished", "ended")
"""Events that show how far training has come. The last event of progress may be a few steps before the end."""


def render(found: RunData, now: datetime) -> str:
    """Renders a run as one self-contained HTML document."""
    return html_of("page.html", _model(found, now))


def html_of(template: str, model: Mapping[str, Any]) -> str:
    """Renders one of the templates with these variables."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ddpjob_operator.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"moment": _moment, "number": _number}
    # Tables and figures contain text from other programs, so characters that change its direction are escaped.
    return visible(environment.get_template(template).render(model))


def _model(found: RunData, now: datetime) -> dict[str, Any]:
    """The variables of the template."""
    (found,) = masked([found])
    recorded = found.recorded
    interruptions = interruptions_of(found.incidents, recorded)
    zero = _began(found)
    return {
        "name": found.name,
        "now": now,
        "zero": zero,
        "state": state_of(found),
        "message": found.job.status.message if found.job else "",
        "facts": list(facts_of(found, now)),
        "figures": list(_figures(recorded, found.with_losses, interruptions, zero)),
        "about_steps": _about_steps(found.job),
        "advice": advice_on(found.job) if found.job else "",
        "last_lines": found.last_lines,
        "incidents": interruptions,
        "programs": found.kept.programs[::-1] if found.kept else (),
        "stacks": found.stacks,
        "seen": recorded.seen,
        "checkpoints": recorded.of("saved")[-CHECKPOINTS:][::-1],
        "settings": [(group, pairs) for group, pairs in settings_of(found) if pairs],
    }


def state_of(found: RunData) -> str:
    """The job's state. If there is no job, how it ended according to its history or its records, or Unknown."""
    if found.job:
        return str(found.job.status.state)
    if found.kept and (state := ENDS.get(found.kept.result)):
        return state
    last = found.recorded.starts[-1] if found.recorded.starts else None
    if last and last.of("finished"):
        return "Finished"
    if last and (ended := last.of("ended")):
        return "Stopped" if ended[-1].values.get("error") == STOPPED_ON_REQUEST else "Failed"
    return "Unknown"


def _began(found: RunData) -> datetime | None:
    known = [start.began.time for start in found.recorded.starts]
    if found.kept and found.kept.began:
        known.append(found.kept.began)
    if found.job and found.job.status.start_time:
        # A resumption has replaced the time of the first start, which may not be recorded either.
        known.append((found.created if found.job.status.resumed else None) or found.job.status.start_time)
    return min(known, default=None)


def facts_of(found: RunData, now: datetime) -> Iterator[tuple[str, str]]:
    """Names and values of the facts at the top of the page."""
    recorded, job, zero = found.recorded, found.job, _began(found)
    last = recorded.last
    if zero:
        ended = (job.status.completion_time if job else None) or (now if job and found.carried_on else None)
        until = ended or (found.kept.ended if found.kept else None) or (last.time if last else zero)
        yield "Started", _moment(zero)
        yield "Duration", _lasted(job, zero, until)
    at_rest = job is None or job.status.finished or job.status.state is State.SUSPENDED
    if not at_rest and not found.carried_on:
        yield "Managed by", "no ddpjob run, so this page may be out of date"
    if size := _world(found):
        yield "World", size
    told = recorded if recorded.of("progress") else found.printed
    yield from _results(told, found.with_losses)
    if not told.of("progress"):
        yield from _told(job)
    if job:
        yield "Restarts", restarts(job.status.restarts, job.status.disruptions)
    elif recorded.starts:
        yield "Starts", str(len(recorded.starts))
    if job and (lost := job.status.message_while_true(ConditionType.LOSS_NOT_FINITE)):
        yield "Loss not finite", lost
    if repeated := _repeated(found):
        least = "at least " if recorded.seen else ""  # The first step of a start may be missing.
        yield "Trained again", f"{least}{counted(repeated, 'step')} after interruptions"
    if started_over := _started_over(found):
        yield "Started over", started_over
    if code := _code(found):
        yield "Code", code
    if job and job.status.code and (new := job.status.code.replaced):
        yield "New code", visible(new)
    if job:
        yield (
            "Command",
            " ".join([*job.spec.trainer.get("command", ()), *job.spec.trainer.get("args", ())]),
        )


def _repeated(found: RunData) -> int:
    """How many steps were trained again after interruptions."""
    ends = {one.attempt: one.step for one in found.incidents if one.step is not None}
    return found.recorded.repeated_steps(ends)


def _lasted(job: DDPJob | None, zero: datetime, until: datetime) -> str:
    in_all = max(0.0, (until - zero).total_seconds())
    if job is None or not job.status.resumed or job.status.start_time is None:
        return lasted(in_all, None)
    return lasted(max(0.0, (until - job.status.start_time).total_seconds()), in_all)


def _world(found: RunData) -> str:
    status = found.job.status if found.job else None
    if status and status.nodes and status.procs_per_node:
        return f"{world(status.nodes, status.procs_per_node)}, {status.backend}"
    if found.kept:
        return found.kept.world
    starts = found.recorded.starts
    return counted(int(starts[-1].began.number("world_size") or 1), "process") if starts else ""


def _code(found: RunData) -> str:
    """The git commit that the job was submitted from, in words; empty if it is unknown."""
    of_job = GitState.of(found.job.metadata.annotations or {}) if found.job else None
    return str(of_job or (found.kept and found.kept.git) or "")


def _started_over(found: RunData) -> str:
    """The attempts that started again at the run's first step, in words; empty if there are none."""
    if found.job and (said := found.job.status.message_while_true(ConditionType.STARTED_OVER)):
        return said
    first, *later = (start.began for start in found.recorded.starts) if found.recorded.starts else (None,)
    # If there is a job, only its condition counts, which was checked above. The steps that a supervisor recorded do
    # not count, because the first step of a start may be missing.
    if first is None or found.job or found.recorded.seen or not found.recorded.repeated_steps():
        return ""
    return ", ".join(f"attempt {began.attempt} at step {began.step}" for began in later if began.step <= first.step)


def _told(job: DDPJob | None) -> Iterator[tuple[str, str]]:
    """Yields step and loss from the job's status, for a program whose progress was not recorded."""
    seen = job.status.progress if job else None
    if seen and seen.step is not None:
        yield "Step", f"{seen.step}{f' of {seen.total_steps}' if seen.total_steps else ''}"
    if seen and (seen.loss is not None or seen.loss_not_finite):
        yield "Loss", seen.loss_not_finite or _number(seen.loss or 0.0)


def _results(recorded: Records, with_losses: Records) -> Iterator[tuple[str, str]]:
    progress, evaluated, finished = (recorded.of(event) for event in ("progress", "evaluated", "finished"))
    last = recorded.last_trained
    if progress and last:
        total = last.began.number("total_steps") or progress[-1].number("total_steps")
        counted_again = last.counted
        ends = last.of if counted_again else recorded.of
        step = max(entry.step for event in REACHED for entry in ends(event)[-1:])
        total_text = f" of {total:.0f}" if total else ""
        yield "Step", f"{counted(step, 'step')} since the last restart" if counted_again else f"{step}{total_text}"
    if (losses := with_losses.of("progress")) and (value := losses[-1].number("loss")) is not None:
        yield "Loss", _number(value)
    if evaluated:
        names = (name for name in evaluated[-1].values if name not in {"attempt", "step", "epoch", "samples"})
        for name in names:
            if (value := evaluated[-1].number(name)) is not None:
                yield f"Evaluated {name}", _number(value)
    paces = finished or progress
    if paces and (value := paces[-1].number("samples_per_second")) is not None:
        yield "Throughput", f"{value:,.0f} samples/s"


def _figures(
    recorded: Records, told: Records, interruptions: list[Interruption], zero: datetime | None
) -> Iterator[tuple[str, str, Markup]]:
    """Yields heading, caption and drawing of each figure that has data. Loss and metrics are drawn from `told`."""
    evaluated = ", of all in evaluation" if told.of("evaluated") else ""
    drawn = (
        ("Loss", f"of rank 0 in training{evaluated}", figures.loss(told, interruptions)),
        *((name, "by step", svg) for name, svg in figures.metrics(told)),
        ("Throughput", "total of all processes", zero and figures.throughput(recorded, interruptions, zero)),
        (
            "Step times by rank",
            "each rank's own part: the median, and where 90% of its steps lie",
            figures.ranks(recorded),
        ),
        ("Parts of a step", "means of rank 0", figures.parts(recorded)),
    )
    for heading, caption, svg in drawn:
        if svg:
            yield heading, caption, Markup(svg)  # noqa: S704  Drawn here; matplotlib escapes its text.


def _about_steps(job: DDPJob | None) -> str:
    """Advice on how the program can report its steps, to show if there are no curves."""
    if job is None:
        return ""
    if job.spec.supervisor == TRAIN:
        return "No step has been seen yet."
    if job.spec.supervisor or job.status.bookkeeping.supervised:
        return (
            "No step has been seen. A program without a PyTorch optimizer reports its steps with "
            "ddpjob.report(step=…)."
        )
    return "Steps are seen under ddpjob-supervise, or where the program prints: progress step=1 loss=0.5"


def settings_of(found: RunData) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Environment and configuration, as groups of names and values."""
    if found.recorded.starts:
        facts = dict(found.recorded.starts[-1].began.values)
        groups = ("versions", "options", "environment")
        inner = {name: facts[name] for name in groups if isinstance(facts.get(name), Mapping)}
        known = ("host", "image", "platform", "device", "threads", "world_size", "local_world_size")
        yield "Machine", [(name, str(facts[name])) for name in known if facts.get(name)]
        for group, values in inner.items():
            yield group.capitalize(), list(_flat(values))
    if found.job:
        variables = found.job.spec.trainer.get("env", ())
        shown = [(variable["name"], _variable(variable)) for variable in variables]
        yield "Variables of the template", shown


def _variable(variable: Mapping[str, Any]) -> str:
    if "valueFrom" in variable:
        return f"from {', '.join(variable['valueFrom'])}"
    return str(variable.get("value", ""))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _number(value: float) -> str:
    return f"{value:.4g}"
