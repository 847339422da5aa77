"""How long anybody may have to wait, and how much is read of what others write, room by room.

The tests of these rooms take the numbers from the code, so they do not notice another number.
"""

from pkgutil import resolve_name

import pytest

LONGEST: dict[float, str] = {
    0.1: "cli.attached.REFRESH cli.checkpoint.POLL cli.cluster.run_on.POLL cli.display.REFRESH",
    0.2: "cli.cluster.job_logs.POLL cli.cluster.shown_job.POLL cli.logs.POLL cli.status.POLL sdk.handle.POLL "
    "sdk.notebook.POLL",
    0.5: "cli.cluster.delete.POLL client.reader_pod.LOOK sdk.notebook.REDRAW",
    1: "cli.attached.END cli.cluster.pod_logs.RETRY cli.cluster.talk.AGAIN cli.completion.ANSWER "
    "client.watch.RETRY local.container.RETRY",
    2: "local.status_listener.READ",
    3: "cli.cluster.life.SETTLED cli.display.BLOCKED cli.target.ANSWER",
    5: "cli.attached.LAST cli.cluster.delete.HELD cli.cluster.held_run.LAST_LINES cli.display.LAST",
    10: "cli.cluster.job_checkpoint.UNNOTICED cli.cluster.life.UNNOTICED client.cluster.CONNECT "
    "client.reader_pod.SAY",
    20: "cli.cluster.pod_logs.SETTLE local.look.ANSWER",
    60: "client.cluster.ANSWER client.kubeconfig.CREDENTIALS",
    180: "client.reader_pod.START",
    600: "cli.cluster.delete.DEADLINE client.kubeconfig.CLIENT client.watch.OUTAGE",
}
"""How many seconds anybody may have to wait at most, in front of a command or a notebook."""


@pytest.mark.parametrize(
    ("seconds", "wait"), [(seconds, wait) for seconds, waits in LONGEST.items() for wait in waits.split()]
)
def test_nobody_waits_longer(seconds: float, wait: str) -> None:
    assert 0 < resolve_name(f"ddpjob_operator.{wait}_SECONDS") <= seconds


MOST: dict[int, str] = {
    10: "history.job_history.NAMED api.status.MAX_INCIDENTS",
    16: "cluster.kube.clock.MOST_CLOCKS report.stacks.MOST engine.reports.INCIDENTS cli.from_history.INCIDENTS",
    32: "api.inheritance.MOST_INHERITED view_model.logged_progress.MOST_FIELDS api.trace_context.MOST_MEMBERS",
    64: "cli.cluster.pod_logs.FOLLOWED cli.from_history.NODES engine.questions.MOST_DOMAINS "
    "cli.terminal.MOST_PARAMETERS",
    400: "client.cluster.QUOTED_BYTES client.pod_exec.QUOTED_BYTES local.look.QUOTED_BYTES "
    "sdk.handle.TRACEBACK_LINES",
    1000: "cli.from_history.LONGEST view_model.logged_progress.LOOKED_AT history.job_index.MOST_NAMESPACES "
    "cluster.recorder.REMEMBERED_EVENTS",
    1024: "api.inheritance.LONGEST_VALUE cluster.recorder.MESSAGE_LENGTH engine.conditions.MESSAGE_LENGTH",
    4096: "view_model.records.LONGEST_TEXT local.processes.MESSAGE_BYTES cluster.serve.fair_server.LINE_BYTES "
    "history.job_history.HEAD_BYTES",
    5000: "client.source.MOST_FILES sdk.modules.MOST_FILES",
    10_000: "history.job_index.MOST_JOBS",
    1 << 16: "cli.attached.LONGEST_LINE cli.last_loss.TAIL sdk.cells.MOST_BYTES "
    "sdk.running.LOG_BYTES client.serve_files.MOST_NAMES",
    100_000: "api.job_file.MOST_VALUES history.places.MOST_NAMES history.pruning.MOST_FILES",
    1 << 18: "cli.run_logs.LONGEST_LINE engine.foreign.LARGEST_ANSWER history.job_history.LONGEST_LINE",
    1 << 20: "client.archive.IN_A_CONFIG_MAP.packed client.serve_files.MOST_BYTES local.record_files.LONGEST_LINE "
    "cli.run_logs.PIECE sdk.functions.MOST_BYTES history.job_history.SEGMENT_BYTES",
    2 << 20: "client.pod_exec.LONGEST_LINE",
    4 << 20: "api.job_file.LONGEST_TEXT cluster.kube.api_client.PAGE_BYTES",
    8 << 20: "client.cluster.LARGEST_BYTES cluster.store.PARSED_BYTES",
    64 << 20: "local.files.LARGEST_BYTES client.archive.IN_A_CONFIG_MAP.unpacked client.archive.BY_EXEC.packed",
    256 << 20: "client.unpack.MOST_BYTES",
}
"""The most that is read, kept or shown: characters, bytes, or how many."""


@pytest.mark.parametrize(
    ("most", "bound"), [(most, bound) for most, bounds in MOST.items() for bound in bounds.split()]
)
def test_no_more_is_read(most: int, bound: str) -> None:
    assert 0 < resolve_name(f"ddpjob_operator.{bound}") <= most
