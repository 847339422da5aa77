"""docs/reference/status-page.md names all that the status port tells."""

import re
from pathlib import Path

from ddpjob_supervisor.gang.messages import End, Incident
from ddpjob_supervisor.gang.states import Delay, Phase, Stall
from ddpjob_supervisor.page.document import Document, Gang, Memory, document
from ddpjob_supervisor.page.metrics import Metrics
from ddpjob_supervisor.page.progress import Progress
from ddpjob_supervisor.page.stragglers import Straggler
from ddpjob_supervisor.watch.checkpoint_requests import RequestOutcome

PAGE = Path(__file__).parents[4] / "docs/reference/status-page.md"

FULL = Gang(
    uid="u",
    nodes=2,
    procs_per_node=1,
    attempt=2,
    phase=Phase.STALLED,
    since=1.0,
    incidents=[Incident(1, 0, End(0, 137, 1.0, "Application", "killed by SIGKILL"))],
    beats=[
        {"rank": 0, "node": 0, "step": 3, "memoryBytes": 5, "stepSeconds": 0.1}
        | {"seconds": {"data": 1.0}, "metrics": {"a": 1.0}}
    ],
    progress=Progress(3, 1, 10, 0.5, 1.0, 0.1, 5.0),
    checkpoint={"step": 2, "time": "2026-11-21T12:00:00.000Z"},
    requested=RequestOutcome("a", "Saved", 2),
    stall_limit=480.0,
    stall=Stall(1.0, 1, 1, "it is stopped"),
    delay=Delay(1.0, 300.0, "no step seen for 5 min"),
    stopped="rank 1 is stopped (SIGSTOP)",
    stragglers=[Straggler(1, 1, 1.8)],
    memory=Memory(1, 2),
    coordinator="10.0.0.7:29502",
)


def names(document: Document) -> set[str]:
    """Names of all fields but those that are the program's."""
    nested = [value for key, value in document.items() if key not in {"seconds", "metrics"}]
    objects = [one for value in nested for one in (value if isinstance(value, list) else [value])]
    return set(document).union(*(names(one) for one in objects if isinstance(one, dict)))


def test_the_page_names_each_field_of_the_document() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    told_of_all = names(document(FULL)) | names(document(_as_coordinator()))
    assert told_of_all <= told


def test_the_page_lists_each_metric_with_its_meaning() -> None:
    metrics, told = Metrics(), document(_as_coordinator())
    metrics.note(told)
    meanings = re.findall(r"^# HELP ddpjob_trainer_(\w+) (.*)$", metrics.exposition(told).decode(), re.MULTILINE)
    rows = re.findall(
        r"^\| `(\w+)`(?: by [^|]*)? \| (.*) \|$",
        PAGE.read_text(encoding="utf-8").split("## /metrics")[1],
        re.MULTILINE,
    )
    assert rows == meanings


def _as_coordinator() -> Gang:
    return Gang(**{name: getattr(FULL, name) for name in Gang.__slots__ if name != "coordinator"})
