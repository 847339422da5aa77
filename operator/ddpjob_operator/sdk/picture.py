"""What a notebook shows of a job: one piece of HTML with the curve of the loss, and the same in plain text.

Names, messages and lines are data of others. They are bounded and escaped, and nothing in the HTML runs or loads.
"""

from collections import deque
from dataclasses import dataclass, field
from html import escape

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.words import duration
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import Curve, LoggedProgress, last_loss

EVENTS, LINES = 5, 12
"""How many of the last events and lines are shown."""
LONGEST = 300
"""A text is cut off after this many characters."""
WIDTH, HEIGHT = 420, 150
"""The size of the curve, in pixels."""

PAGE = (
    '<div style="font-family: sans-serif; line-height: 1.4">'
    '<div style="display: flex; flex-wrap: wrap; gap: 1.5em; align-items: flex-start">'
    '<div style="flex: 1 1 20em">{text}</div>{curve}</div>{lines}</div>'
)
TEXT = "<div><b>{name}</b>: {state}</div><div>{message}</div><div>{progress}</div>{events}"
EVENT = '<div style="opacity: .7; font-size: 90%">{event}</div>'
LOG = '<pre style="font-size: 85%; margin: .5em 0 0; overflow-x: auto; opacity: .8">{lines}</pre>'
CURVE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall}" viewBox="0 -14 {width} {tall}" '
    'role="img" aria-label="{label}" style="flex: none; color: inherit">'
    '<rect width="{width}" height="{height}" fill="none" stroke="currentColor" stroke-opacity=".2"/>'
    '<polyline fill="none" stroke="#1f77b4" stroke-width="1.5" '
    'points="{points}"/><g font-size="11" font-family="sans-serif" fill="currentColor" opacity=".7">'
    '<text x="4" y="-3">loss {highest}</text><text x="4" y="{above}">{lowest}</text><text x="0" y="{below}">step '
    '{first}</text><text x="{width}" y="{below}" text-anchor="end">{last}</text></g></svg>'
)


@dataclass
class Picture:
    """What is known of a job, as it is to be shown."""

    job: DDPJob
    curve: Curve = field(default_factory=Curve)
    logged: LoggedProgress = field(default_factory=LoggedProgress)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS))
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))

    def update(self, job: DDPJob) -> None:
        """Takes the job's present state."""
        self.job, seen = job, job.status.progress
        # The status is up to ten seconds older than what the program prints about its progress, if it prints that.
        if seen is not None and seen.step is not None and seen.loss is not None and not self.logged.ranks:
            self.curve.add(seen.step, seen.loss)

    def tell(self, event: str) -> None:
        """Takes an event, unless it is the last one."""
        if (said := _bounded(event)) not in list(self.events)[-1:]:
            self.events.append(said)

    def read(self, line: Line) -> None:
        """Takes a line of the log. A progress report is a point of the curve, and is not shown."""
        report = self.logged.hear(line.node, line.text[:LONGEST], line.attempt)
        if report is None:
            self.lines.append(_bounded(str(line)))
            return
        step, loss = report.number("step"), report.values.get("loss", "")
        if report.event == "progress" and step is not None and not (line.node or report.number("rank")):
            try:
                self.curve.add(step, float(loss))
            except ValueError:
                return

    def html(self) -> str:
        """The picture as HTML."""
        status, told = self.job.status, (EVENT.format(event=escape(event)) for event in self.events)
        text = TEXT.format(
            name=escape(_bounded(self.job.metadata.name)),
            state=escape(str(status.state)),
            message=escape(_bounded(status.message)),
            progress=escape(self._progress()),
            events="".join(told),
        )
        lines = LOG.format(lines=escape("\n".join(self.lines))) if self.lines else ""
        return PAGE.format(text=text, curve=drawn(self.curve), lines=lines)

    def plain(self) -> str:
        """The picture as text, for notebooks that show no HTML."""
        status = self.job.status
        head = f"{_bounded(self.job.metadata.name)}: {status.state}. {_bounded(status.message)}"
        return "\n".join([head, *filter(None, [self._progress()]), *self.events, *self.lines])

    def _progress(self) -> str:
        """How far training has come, as far as that is known."""
        seen, loss = self.job.status.progress, last_loss(self.job.status, self.logged)
        step = seen.step if seen is not None and seen.step is not None else self.logged.step
        total = f" of {seen.total_steps}" if seen is not None and seen.total_steps else ""
        eta = f"{duration(seen.eta_seconds)} left" if seen is not None and seen.eta_seconds is not None else ""
        parts = (f"step {step}{total}" if step is not None else "", f"loss {loss}" if loss else "", eta)
        return _bounded(", ".join(filter(None, parts)))


def drawn(curve: Curve) -> str:
    """The curve of a loss as an SVG; empty if there are fewer than two points."""
    if len(curve.points) < 2:  # noqa: PLR2004  A line has two ends.
        return ""
    steps, losses = [step for step, _ in curve.points], [loss for _, loss in curve.points]
    lowest, highest = min(losses), max(losses)
    wide, high = (steps[-1] - steps[0]) or 1.0, (highest - lowest) or 1.0
    at = (
        f"{(step - steps[0]) / wide * WIDTH:.1f},{(highest - loss) / high * HEIGHT:.1f}"
        for step, loss in curve.points
    )
    label = f"loss from step {steps[0]:.0f} to {steps[-1]:.0f}: {losses[0]:.4g} to {losses[-1]:.4g}"
    return CURVE.format(
        width=WIDTH,
        height=HEIGHT,
        tall=HEIGHT + 30,
        label=label,
        points=" ".join(at),
        highest=f"{highest:.4g}",
        lowest=f"{lowest:.4g}",
        above=HEIGHT - 4,
        below=HEIGHT + 13,
        first=f"{steps[0]:.0f}",
        last=f"{steps[-1]:.0f}",
    )


def _bounded(text: str) -> str:
    shown = one_line(text[: LONGEST + 1])
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
