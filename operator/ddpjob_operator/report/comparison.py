"""Renders several runs beside each other: their results, where they differ, and their curves over each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from ddpjob_operator.view_model import curves_of

from . import figures
from .page import facts_of, html_of, settings_of, state_of
from .run_data import RunData
from .run_mask import masked

MOST_RUNS = len(figures.SERIES)
"""How many runs can be compared: as many as there are colours that can be told apart."""
GIVEN = ("Code", "Command")
"""Facts that say what was run, not what came of it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row of a table."""

    name: str
    values: Sequence[str | None]
    """A value of each run, in the order of the runs. Empty: the run has none; None: nobody knows."""

    @property
    def differs(self) -> bool:
        """Whether the runs are known to have different values."""
        return len({said for said in self.values if said is not None}) > 1


def compare(runs: Sequence[RunData], now: datetime) -> str:
    """Renders two to MOST_RUNS runs as one self-contained HTML document."""
    shown = masked(runs)
    labels = _labels(shown)
    facts = [dict(facts_of(found, now)) for found in shown]
    results = [{"": {name: said for name, said in known.items() if name not in GIVEN}} for known in facts]
    rows = _rows([_given(found, known) for found, known in zip(shown, facts, strict=True)])
    model = {
        "labels": labels,
        "states": [state_of(found) for found in shown],
        "now": now,
        "results": _rows(results),
        "differences": [row for row in rows if row.differs],
        "same": [row for row in rows if not row.differs],
        "figures": [*_figures(labels, shown)],
    }
    return html_of("comparison.html", model)


def _labels(runs: Sequence[RunData]) -> list[str]:
    """The runs' names; of runs with the same name, all but the first have a number."""
    labels: list[str] = []
    for found in runs:
        label, number = found.name, 2
        while label in labels:
            label, number = f"{found.name} ({number})", number + 1
        labels.append(label)
    return labels


Groups = dict[str, dict[str, str]]
"""Names and values in groups. If a run lacks a group, the values of the group are unknown."""


def _given(found: RunData, facts: dict[str, str]) -> Groups:
    """What a run was given: code and command, options, versions, machine and variables."""
    given = {name: {"": facts[name]} for name in GIVEN if name in facts}
    return given | {group: dict(pairs) for group, pairs in settings_of(found)}


def _rows(columns: Sequence[Groups]) -> list[Compared]:
    """A row for each name that any run has."""
    names = dict.fromkeys((group, name) for column in columns for group, pairs in column.items() for name in pairs)
    return [
        Compared(
            ": ".join(filter(None, (group, name))),
            [column[group].get(name, "") if group in column else None for column in columns],
        )
        for group, name in names
    ]


def _figures(labels: Sequence[str], runs: Sequence[RunData]) -> Iterator[tuple[str, Markup]]:
    """Yields the name and the drawing of each curve that any run has."""
    curves = [curves_of(found.recorded, found.printed) for found in runs]
    names = dict.fromkeys(name for known in curves for name in known)
    for name in [*names][: figures.METRICS]:
        shown = {
            label: known[name].points if name in known else [] for label, known in zip(labels, curves, strict=True)
        }
        yield name, Markup(figures.overlaid(name, shown))  # noqa: S704  Drawn here; matplotlib escapes its text.
