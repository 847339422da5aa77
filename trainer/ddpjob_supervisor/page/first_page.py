"""The page of `GET /`: the document of `GET /status`, for people. Pure.

It has no script, and its style is admitted by a hash, so nothing that a program reports can become code.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Any

from ddpjob_rank.console import counted, printable

from .document import Document

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --page: #fff; --soft: #5b6472; --rule: #d5dae1; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --page: #0f1318; --soft: #9aa4b2; --rule: #303945; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; }
.soft, dt, th { color: var(--soft); font-weight: 400; } a { color: inherit; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .25rem 1rem; }
dd { margin: 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--rule); overflow-wrap: break-word; }
"""
HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
AGAIN_SECONDS = 5
LIVE = "live"
"""The query with which the page is loaded again and again. Without it the page stays as it is, so that somebody can
read it in peace."""
LONGEST = 512
"""A value is cut off after this many characters."""
TROUBLES = (("stall", "Stalled"), ("firstStepDelay", "First step"), ("stoppedRanks", "Stopped"), ("hold", "Hold"))
"""Parts of the document that have a message, and how they are called."""
MINUTE, HOUR = 60, 3600


def as_html(document: Document, host: str, *, live: bool = False) -> str:
    """The document as a page of HTML. `host` names job and machine; `live`: whether it is loaded again by itself.

    Example:
        `as_html(document(gang), "digits on node-a")` begins with `<!doctype html>`, and says `Running, attempt 2`.
    """
    heading = f"{document['phase']}, attempt {document['attempt']}"
    reload = '<a href="/">no longer by itself</a>' if live else f'<a href="/?{LIVE}">every {AGAIN_SECONDS} s</a>'
    incidents = _table(
        "Incidents", ("attempt", "when", "rank", "cause", "what it said", "step"), _incidents(document)
    )
    ranks = _table("Ranks", ("rank", "node", "step", "does", "per step", "memory", "metrics"), _ranks(document))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(host)}: {_text(heading)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{_text(heading)}</h1>
<p class="soft">{_text(host)} at {_moment(document["now"])}. Reload: {reload}.
For programs: <a href="/status">status</a>, <a href="/curve">curve</a>, <a href="/metrics">metrics</a>,
<a href="/stacks">stacks</a>.</p>
{_list(_facts(document))}
{incidents}{ranks}</main>
</body>
</html>
"""


def _facts(document: Document) -> Iterator[tuple[str, str]]:
    """What is known of the gang: names and values."""
    now = document["now"]
    if coordinator := document.get("coordinator"):
        yield "All nodes", f"this page shows only its own node; rank 0's supervisor, at {coordinator}, shows all"
    if since := document.get("since"):
        yield "Since", f"{_ago(since, now)} ago"
    yield "World", f"{counted(document['nodes'], 'node')}, {document['procsPerNode']} per node"
    for name, label in TROUBLES:
        if found := document.get(name):
            yield label, found["message"]
    if missing := document.get("missing"):
        yield "Not connected", f"nodes {', '.join(map(str, missing))}"
    yield from _progress(document.get("progress") or {}, now)
    if saved := document.get("checkpoint"):
        yield "Checkpoint", f"step {saved['step']}, {_ago(saved['time'], now)} ago"
    if slow := document.get("stragglers"):
        yield (
            "Stragglers",
            ", ".join(f"rank {one['rank']} on node {one['node']} ({one['slowdown']} x)" for one in slow),
        )
    if restarts := document.get("inPlaceRestarts"):
        yield "Restarts", f"{restarts} in place"


def _progress(progress: Mapping[str, Any], now: str) -> Iterator[tuple[str, str]]:
    step, again = progress.get("step"), progress.get("stepsSinceRestart")
    if step is not None:
        total = f" of {progress['totalSteps']}" if progress["totalSteps"] else ""
        share = f", {progress['percent']:g}%" if progress["percent"] is not None else ""
        yield "Step", f"{step}{total}{share}{_doing(progress)}"
    elif again is not None:
        yield "Step", f"{counted(again, 'step')} since the last restart{_doing(progress)}"
    if progress.get("loss") is not None:
        yield "Loss", _number(progress["loss"])
    if progress.get("samplesPerSecond") is not None:
        yield "Throughput", f"{progress['samplesPerSecond']:,.0f} samples/s"
    if progress.get("stepSeconds") is not None:
        yield "Per step", _seconds(progress["stepSeconds"])
    if progress.get("lastStepTime"):
        yield "Last step", f"{_ago(progress['lastStepTime'], now)} ago"
    if progress.get("etaSeconds") is not None:
        yield "Left", _duration(progress["etaSeconds"])


def _doing(progress: Mapping[str, Any]) -> str:
    return f", {progress['activity'].lower()}" if progress.get("activity") else ""


def _incidents(document: Document) -> Iterator[tuple[object, ...]]:
    for one in reversed(document.get("incidents") or ()):
        who = f"node {one['node']}" if one["rank"] is None else one["rank"]
        said = f"{one['exception']}: {one['message']}" if one["exception"] else one["message"]
        yield one["attempt"], _moment(one["time"]), who, one["cause"], said, one["step"]


def _ranks(document: Document) -> Iterator[tuple[object, ...]]:
    for one in document.get("ranks") or ():
        pace = None if one["stepSeconds"] is None else _seconds(one["stepSeconds"])
        memory = None if one["memoryBytes"] is None else f"{one['memoryBytes'] / 2**30:.2f} GiB"
        told = ", ".join(f"{name} {_number(value)}" for name, value in one["metrics"].items())
        yield one["rank"], one["node"], one["step"], one["activity"], pace, memory, told


def _list(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>\n" for name, value in facts)
    return f"<dl>{rows}</dl>\n"


def _table(heading: str, names: Iterable[str], rows: Iterable[tuple[object, ...]]) -> str:
    """A table with its heading; nothing if it has no row."""
    cells = ("".join(f"<td>{'' if cell is None else _text(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>\n" for row in cells)
    if not body:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    # A keyboard scrolls only what can have the focus.
    return (
        f'<h2>{heading}</h2>\n<div class="scroll" tabindex="0" role="region" aria-label="{heading}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def _text(value: object) -> str:
    """A value as text of HTML, bounded, and without control characters."""
    return escape(printable(str(value)[:LONGEST]))


def _moment(time: str) -> str:
    """A time in RFC 3339's format, without its fraction of a second: `2026-09-21 14:13:20 UTC`."""
    return f"{time[:10]} {time[11:19]} UTC"


def _ago(time: str, now: str) -> str:
    """How long a time was before `now`. The time may be that of a program, and be no time at all."""
    try:
        return _duration((datetime.fromisoformat(now) - datetime.fromisoformat(time)).total_seconds())
    except (ValueError, TypeError):
        return "?"


def _duration(seconds: float) -> str:
    """A duration: `7 s`, `5m30s`, `2h5m`."""
    whole = max(0, round(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE}s"
    return f"{whole // HOUR}h{whole % HOUR // MINUTE}m"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _number(value: object) -> str:
    """A number in a few digits. One that is not finite is a word already."""
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
