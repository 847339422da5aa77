"""Rows and details of jobs as JSON, without secrets."""

from collections.abc import Callable
from typing import Any

from ddpjob_operator.cli.top.drawing import whom_others_wait_for
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import TROUBLE, Curve, JobDetail, JobKey, JobRow, RankRow, TimeAxis, without_secrets

Document = dict[str, Any]
Hide = Callable[[str], str]
"""Masks the secrets in a text."""


def id_of(key: JobKey) -> str:
    """A name for the job that is unique on a page."""
    return f"{key.origin.value}:{key.uid}"


def row_document(row: JobRow, hide: Hide = without_secrets) -> Document:
    """A row."""
    return {
        "id": id_of(row.key),
        "name": row.name,
        "origin": row.key.origin.value,
        "namespace": row.key.namespace,
        "state": row.state,
        "message": hide(row.message),
        "why": hide(row.why),
        "ready": row.ready,
        "progress": row.progress,
        "percent": row.percent,
        "eta": row.eta,
        "etaSeconds": row.eta_seconds,
        "samplesPerSecond": row.samples_per_second,
        "loss": row.loss,
        "restarts": row.restarts,
        "disruptions": row.disruptions,
        # It changes with each moment; a page shows no more digits.
        "goodput": None if row.goodput is None else round(row.goodput, 2),
        "made": None if row.made is None else row.made.timestamp(),
        "ended": None if row.ended is None else row.ended.timestamp(),
        "trouble": row.state in TROUBLE,
        "finished": row.finished,
        "needsALook": row.needs_a_look,
    }


def detail_document(detail: JobDetail, hide: Hide) -> Document:
    """A job in full, in parts of which each changes for itself."""
    return {
        "row": row_document(detail.row, hide),
        "lines": {label: hide(text) for label, text in detail.lines.items()},
        "ranks": [_rank(row) for row in detail.ranks],
        "slowest": one_line(whom_others_wait_for(detail.slowest)),
        "start": [
            {"step": branch.step.value, "seconds": branch.seconds and round(branch.seconds, 1), "over": branch.over}
            for branch in detail.start
        ],
        "axis": None if detail.axis is None else _axis(detail.axis, hide),
        "curves": {one_line(name): _points(curve) for name, curve in detail.curves.items()},
        "clock": _points(detail.clock),
        "noCurves": hide(detail.no_curves),
    }


def _rank(row: RankRow) -> Document:
    return {
        "ranks": row.ranks,
        "node": row.node,
        "nodeName": row.node_name,
        "state": row.state,
        "step": row.step,
        "activity": row.activity,
        "stepSeconds": row.step_seconds,
        "ownSeconds": row.own_seconds,
        "slowdown": row.slowdown,
        "slowed": row.slowed,
        "memoryBytes": row.memory_bytes,
        "transport": row.transport,
        "ofNode": row.of_node,
    }


def _axis(axis: TimeAxis, hide: Hide) -> Document:
    return {
        "began": axis.began.timestamp(),
        "until": round(axis.until.timestamp()),
        "incidents": [
            {
                "number": one.number,
                "time": one.time.timestamp(),
                "place": round(axis.place(one), 3),
                "attempt": one.attempt,
                "cause": one_line(hide(one.cause)),
                "message": one_line(hide(one.message)),
                "step": one.step,
                "resumed": one.resumed,
                "failed": one.failed,
            }
            for one in axis.incidents
        ],
    }


def _points(curve: Curve) -> list[list[float]]:
    """The steps, and the values."""
    return [[step for step, _ in curve.points], [value for _, value in curve.points]]
