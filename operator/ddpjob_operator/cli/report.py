"""`ddpjob report RUN …`: writes a report of a run, or a comparison of several, as one HTML page."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RunDirectory, Runs, find_run, find_runs
from ddpjob_operator.local.files import write_whole

from .phrases import file_path, writer
from .run_logs import RunLogs

if TYPE_CHECKING:
    from ddpjob_operator.report import LastLines, RunData

    Found = RunData | Sequence[RunData]

PAGE = "report.html"
COMPARISON = Path("comparison.html")
"""Where a comparison is written by default: it belongs to no single run."""
NEEDED = ("jinja2", "matplotlib")


def report(runs: Runs, run: str | None, output: Path | None, others: Sequence[str] = ()) -> int:
    """Writes the page, and prints its path. With other runs, compares them with the first.

    Raises:
        BadInputError: there is no such run, the page cannot be written, or its libraries are missing.
    """
    directory = _directory(runs, run)
    if others:
        directories = dict.fromkeys([directory, *(_directory(runs, other) for other in others)])
        return write_page(
            output or COMPARISON, lambda now: [_found(one, now) for one in directories], whole=output is None
        )
    return write_page(output or directory / PAGE, lambda now: _found(directory, now), whole=output is None)


def _found(directory: Path, now: datetime) -> "RunData":
    from ddpjob_operator.report import find  # noqa: PLC0415  Its libraries may be missing.

    from .printed_records import printed  # noqa: PLC0415

    logs, known = RunDirectory(directory).logs, find(directory)
    return replace(known, printed=printed(logs, now), last_lines=_last_lines(known, logs))


def _last_lines(found: "RunData", logs: Path) -> "LastLines | None":
    """What the rank that failed first in the last incident printed last, from the logs of a run."""
    from .last_lines import last_lines  # noqa: PLC0415

    if found.job is None or (incident := found.last_incident) is None:
        return None
    read = RunLogs(logs, nodes=frozenset({incident.node}), to_attempt=incident.attempt, last=found.job.status.attempt)
    return last_lines(read.lines(last=True), incident, writer(found.job.status.procs_per_node or 1))


def write_page(output: Path, found: Callable[[datetime], "Found"], *, whole: bool) -> int:
    """Writes the page about what `found` reads, and prints its path.

    Raises:
        BadInputError: As `written_page` does.
    """
    file = written_page(output, found, whole=whole, instead="choose another with --output")
    print(f"written: {file_path(file)}")
    return 0


def written_page(output: Path, found: Callable[[datetime], "Found"], *, whole: bool, instead: str) -> Path:
    """Writes the page about what `found` reads, and returns its path. `instead` is advice after an error.

    With `whole`, the file is replaced atomically. Without it, the file may also be a device or a link.

    Raises:
        BadInputError: the page cannot be written, its libraries are missing, or there are too many runs.
    """
    now = datetime.now(UTC)
    try:
        page = _page(found(now), now)
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise BadInputError(
            f"ddpjob report needs {error.name}; install it with: pip install {' '.join(NEEDED)}"
        ) from None
    file = output.absolute()
    try:
        if whole:
            write_whole(file, page)
        else:
            file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {file}: {error.strerror}; {instead}") from None
    return file


def _page(found: "Found", now: datetime) -> str:
    from ddpjob_operator.report import MOST_RUNS, RunData, compare, render  # noqa: PLC0415  As above.

    if isinstance(found, RunData):
        return render(found, now)
    if len(found) > MOST_RUNS:
        raise BadInputError(f"{len(found)} runs: at most {MOST_RUNS} can be compared")
    return compare(found, now) if len(found) > 1 else render(found[0], now)


def _directory(runs: Runs, run: str | None) -> Path:
    if run is not None and run not in find_runs(runs.directory) and Path(run).is_dir():
        return Path(run)
    return find_run(runs, run).root
