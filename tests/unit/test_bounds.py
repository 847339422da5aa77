"""How long anybody may have to wait, and how much is read of what others write, room by room.

The tests of these rooms take the numbers from the code, so they do not notice another number.
"""

from pkgutil import resolve_name

import pytest

LONGEST: dict[float, str] = {
    0.02: "cluster.workqueue.REST_SECONDS local.files.PROBE_SECONDS",
    0.05: "local.status_listener.SHORTEST_SECONDS",
    0.1: "cli.attached.REFRESH_SECONDS cli.checkpoint.POLL_SECONDS cli.cluster.run_on.POLL_SECONDS "
    "cli.dashboard.web_server.LOG_SECONDS cli.display.REFRESH_SECONDS cluster.job_watch.IDLE_SECONDS "
    "cluster.metrics_access.REFUSAL_SECONDS",
    0.2: "cli.cluster.job_logs.POLL_SECONDS cli.cluster.saves.LOOK_SECONDS cli.cluster.shown_job.POLL_SECONDS "
    "cli.dashboard.web_server.SOON_SECONDS cli.logs.POLL_SECONDS cli.status.POLL_SECONDS "
    "cli.top.app.SOON_SECONDS cluster.kube.backoff.FIRST_SECONDS sdk.handle.POLL_SECONDS "
    "sdk.notebook.POLL_SECONDS",
    0.25: "cluster.workqueue.LONGEST_REST_SECONDS",
    0.5: "cli.cluster.delete.POLL_SECONDS client.reader_pod.LOOK_SECONDS sdk.notebook.REDRAW_SECONDS",
    1: "cli.attached.END_SECONDS cli.cluster.pod_logs.RETRY_SECONDS cli.cluster.talk.AGAIN_SECONDS "
    "cli.completion.ANSWER_SECONDS cli.dashboard.web_server.ENDING_SECONDS "
    "cli.dashboard.web_server.JOBS_SECONDS cli.top.app.REFRESH_SECONDS client.watch.RETRY_SECONDS "
    "cluster.conversion.STOPPED_SECONDS cluster.kube.lease.RETRY_SECONDS cluster.operator.EVENTS_SECONDS "
    "cluster.reflector.UNWANTED_SECONDS cluster.serve.fair_server.CLOSING_SECONDS "
    "cluster.workqueue.CROWD_SECONDS local.container.RETRY_SECONDS",
    2: "cluster.operator.CRD_RETRY_SECONDS cluster.operator.IN_HAND_SECONDS cluster.supervisors.NEWS_SECONDS "
    "local.status_listener.READ_SECONDS",
    3: "cli.cluster.life.SETTLED_SECONDS cli.dashboard.web_server.DETAIL_SECONDS cli.display.BLOCKED_SECONDS "
    "cli.target.ANSWER_SECONDS cli.top.app.DETAIL_SECONDS cluster.reconciler.MINOR_SECONDS",
    4: "cluster.operator.STOP_SECONDS",
    5: "cli.attached.LAST_SECONDS cli.cluster.delete.HELD_SECONDS cli.cluster.held_run.LAST_LINES_SECONDS "
    "cli.cluster.held_run.MARGIN_SECONDS cli.display.LAST_SECONDS cli.top.feeds.OUTAGE_SECONDS "
    "cluster.job_watch.LONGEST_PAUSE_SECONDS cluster.kube.connection.CONNECT_SECONDS "
    "cluster.kube.lease.LEADING_SECONDS cluster.metrics_access.ANSWER_SECONDS "
    "cluster.namespaces.CHECK_SECONDS cluster.reflector.LONGEST_PAUSE_SECONDS "
    "cluster.status_client.CONNECT_SECONDS cluster.status_client.SLACK_SECONDS",
    8: "cluster.kube.lease.LEASE_SECONDS",
    10: "cli.cluster.job_checkpoint.UNNOTICED_SECONDS cli.cluster.life.UNNOTICED_SECONDS "
    "cli.live_view.LATE_SECONDS cli.top.feeds.RETRY_SECONDS client.cluster.CONNECT_SECONDS "
    "client.image_registry.CONNECT_SECONDS client.reader_pod.SAY_SECONDS cluster.kueue.KEPT_SECONDS "
    "cluster.namespaces.CLOSED_SECONDS cluster.reconciler.MINOR_INTERVAL_SECONDS "
    "cluster.serve.web.PROBE_IDLE_SECONDS cluster.supervisors.LONGEST_RETRY_SECONDS "
    "cluster.supervisors.READ_SECONDS local.status_listener.SLACK_SECONDS",
    15: "cli.dashboard.web_server.ALIVE_SECONDS cli.top.feeds.UNSEEN_SECONDS "
    "cluster.kube.connection.REQUEST_SECONDS "
    "engine.policies.way.TURN_SECONDS",
    20: "cli.cluster.pod_logs.SETTLE_SECONDS cluster.contention.ANSWER_SECONDS local.look.ANSWER_SECONDS",
    30: "cli.top.feeds.LIST_AGAIN_SECONDS cli.top.job_points.AGAIN_SECONDS "
    "client.image_registry.HELPER_SECONDS "
    "cluster.kube.backoff.LONGEST_SECONDS cluster.kube.clock.VOTING_SECONDS "
    "cluster.operator.SPREAD_SECONDS cluster.reconciler.LONGEST_RETRY_SECONDS "
    "engine.manifests.children.SILENT_SECONDS engine.policies.steps.DEFAULT_GRACE_SECONDS "
    "local.processes.DEFAULT_GRACE_SECONDS local.runner.RESYNC_SECONDS",
    60: "cli.top.actions.ANSWER_SECONDS client.cluster.ANSWER_SECONDS client.kubeconfig.CREDENTIALS_SECONDS "
    "cluster.contention.KNOWN_SECONDS "
    "cluster.kubernetes_nodes.AGAIN_SECONDS cluster.metrics_access.KEPT_SECONDS "
    "cluster.supervisors.LONGEST_HOPELESS_SECONDS engine.incidents.crash_loop.START_SECONDS "
    "engine.starting_over.FAR_SECONDS",
    75: "cluster.serve.web.IDLE_SECONDS",
    90: "cluster.kube.api_client.SILENCE_SECONDS",
    120: "client.image_registry.ANSWER_SECONDS",
    180: "client.reader_pod.START_SECONDS",
    240: "client.watch.WATCH_SECONDS",
    300: "cluster.kube.api_client.WATCH_SECONDS cluster.kube.clock.KEPT_SECONDS cluster.store.LATE_SECONDS",
    600: "cli.cluster.delete.DEADLINE_SECONDS client.kubeconfig.CLIENT_SECONDS client.watch.OUTAGE_SECONDS "
    "engine.incidents.crash_loop.IMPORT_SECONDS",
    900: "cluster.tally.KEPT_SECONDS",
    3600: "cluster.tally.FAILED_SECONDS",
}
"""How many seconds anybody may have to wait at most, in front of a command or a notebook, and the operator itself."""


@pytest.mark.parametrize(
    ("seconds", "wait"), [(seconds, wait) for seconds, waits in LONGEST.items() for wait in waits.split()]
)
def test_nobody_waits_longer(seconds: float, wait: str) -> None:
    assert 0 < resolve_name(f"ddpjob_operator.{wait}") <= seconds


MOST: dict[int, str] = {
    2: "cluster.namespaces.NAMED_RIGHTS",
    3: "cli.live_view.AT_EACH_END cluster.reconciler.NAMED_ACTIONS engine.incidents.crash_loop.LOOP "
    "engine.policies.size.SLOWER engine.view.KEPT_INCIDENTS sdk.cells.NAMED",
    4: "cli.from_history.FEW cli.from_history.RECENT client.source.MOST_STARS cluster.metrics_access.AT_ONCE "
    "cluster.recorder.TRIES",
    5: "cli.cluster.new_code.NAMED cli.cluster.parcel.FIRST cli.from_history.OTHERS client.archive.NAMED "
    "client.code.TRIES client.source.SHOWN cluster.fair_queue.BESIDE_OTHERS local.files.PROBES "
    "report.figures.NAMED sdk.picture.EVENTS",
    6: "cli.top.drawing.MOST_STATES",
    8: "api.status.MAX_AVOIDED api.status.MAX_STRAGGLERS cli.from_history.RANKS "
    "cluster.reconciler.LARGE_DECISION cluster.recorder.WRITERS engine.incidents.facts.CONSEQUENCES_NAMED "
    "engine.policies.size.MOST_DOUBLINGS engine.policies.steps.MOST_PEERS engine.questions.MOST_MACHINES "
    "engine.reports.NAMED view_model.records.DEEPEST",
    10: "api.status.MAX_INCIDENTS cli.cluster.job_status.EVENTS cli.live_view.LATE history.job_history.NAMED "
    "report.page.CHECKPOINTS",
    12: "sdk.picture.LINES",
    16: "cli.dashboard.web_server.MOST_JOBS cli.from_history.INCIDENTS cluster.kube.clock.MOST_CLOCKS "
    "cluster.namespaces.READ_AT_ONCE cluster.workqueue.AT_WORK engine.reports.INCIDENTS "
    "report.stacks.MOST view_model.rank_rows.PARTS",
    20: "api.restart.MAX_RULES cli.cluster.parcel.NAMED cluster.job_watch.CHUNK cluster.supervisors.HOPELESS "
    "cluster.supervisors.NEWS_BURST local.files.LONGEST_NUMBER",
    30: "cli.last_lines.MOST_LINES",
    32: "api.inheritance.MOST_INHERITED api.restart.MAX_MATCHES api.trace_context.MOST_MEMBERS "
    "cluster.fair_queue.ALONE cluster.writer.ENOUGH_FAILURES report.figures.LONGEST_CAUSE "
    "report.figures.METRICS view_model.logged_progress.MOST_FIELDS view_model.losses.MOST_DIGITS",
    40: "cluster.fair_queue.AT_ONCE sdk.cells.SHOWN sdk.tracebacks.MOST_LINES",
    50: "sdk.json_values.DEEPEST",
    64: "api.status.MAX_EXCEPTIONS cli.cluster.pod_logs.FOLLOWED cli.from_history.NODES "
    "cli.terminal.MOST_PARAMETERS cluster.kube.clock.MANY_CONNECTIONS "
    "cluster.serve.fair_server.WITH_REQUEST engine.questions.MOST_DOMAINS sdk.public_calls.SHOWN "
    "view_model.curves.LONGEST_NAME view_model.curves.MOST_CURVES",
    80: "view_model.logged_progress.QUOTED",
    100: "cli.checkout.MOST_FILTERS cli.from_history.PROGRAMS engine.starting_over.FAR_STEPS "
    "local.machine.MOST_TRIES",
    128: "client.kubeconfig.CONNECTIONS cluster.reconciler.FEW_PODS cluster.serve.fair_server.BACKLOG "
    "cluster.status_client.LONGEST_MARK",
    200: "view_model.description.RESULT_CHARS",
    250: "cluster.recorder.WAITING_EVENTS cluster.store.OBJECTS_PER_TURN",
    253: "cluster.conversion.LONGEST_NAME",
    256: "cluster.metrics_access.KEPT cluster.serve.fair_server.WITHOUT_REQUEST "
    "cluster.supervisors.OPEN_QUESTIONS engine.reports.MAX_BY",
    300: "client.image_registry.QUOTED engine.manifests.env.LONGEST_TOLD report.figures.POINTS sdk.picture.LONGEST",
    400: "cli.top.actions.LONGEST client.cluster.QUOTED_BYTES client.pod_exec.QUOTED_BYTES "
    "local.look.QUOTED_BYTES sdk.handle.TRACEBACK_LINES view_model.curves.MOST_POINTS",
    500: "cli.dashboard.web_server.LOG_LINES cluster.kube.api_client.MOST_LIMIT",
    512: "api.trace_context.LONGEST_STATE cli.from_history.LONGEST_MESSAGE engine.foreign.TEXT_BYTES",
    1000: "cli.dashboard.board.MOST_EVENTS cli.from_history.LONGEST cluster.recorder.REMEMBERED_EVENTS "
    "cluster.store.PARSED_JOBS history.job_index.MOST_NAMESPACES history.places.PAGE "
    "sdk.holding.LAST_LINES view_model.logged_progress.LOOKED_AT view_model.spec_lines.LONGEST_VALUE",
    1024: "api.inheritance.LONGEST_VALUE api.spec.MAX_PLACE api.status.MAX_RESULT_PLACE "
    "cluster.recorder.MESSAGE_LENGTH engine.conditions.MESSAGE_LENGTH sdk.json_values.MOST_BITS "
    "view_model.job_row.LONGEST",
    2000: "cli.last_lines.LONGEST_LINE",
    2048: "api.status.MAX_RESULT cli.screen.SIP local.processes.LOG_TAIL_BYTES",
    4096: "cli.cluster.debug.CHUNK cli.dashboard.web_server.LONGEST_LINE cli.top.job_points.LONGEST_POINT "
    "cluster.kube.objects.SMALL_BYTES "
    "cluster.serve.fair_server.LINE_BYTES history.job_history.HEAD_BYTES local.container.ROOM_BYTES "
    "local.processes.MESSAGE_BYTES view_model.records.LONGEST_TEXT",
    5000: "cli.top.job_points.MOST_POINTS client.source.MOST_FILES sdk.modules.MOST_FILES",
    1 << 13: "client.source.BEGINNING cluster.writer.LARGE_BYTES",
    10_000: "cluster.command.YOUNG_OBJECTS engine.accounting.STEPS_PER_SECOND history.job_index.MOST_JOBS",
    1 << 14: "cli.attached.CHUNK cluster.command.TLS_READ_BYTES",
    20_000: "cli.printed_records.MOST_ENTRIES",
    1 << 15: "client.pod_exec.PIECE report.stacks.STORY_CHARACTERS",
    1 << 16: "cli.attached.LONGEST_LINE cli.dashboard.web_server.LARGEST_REQUEST "
    "cli.dashboard.web_server.LINES_BYTES cli.last_loss.TAIL client.serve_files.MOST_NAMES "
    "sdk.cells.MOST_BYTES sdk.running.LOG_BYTES view_model.rank_rows.MOST_RANKS",
    100_000: "api.yaml_documents.MOST_VALUES history.places.MOST_NAMES history.pruning.MOST_FILES",
    1 << 17: "cli.display.PIECE",
    1 << 18: "cli.run_logs.LONGEST_LINE engine.foreign.LARGEST_ANSWER history.job_history.LONGEST_LINE",
    1 << 19: "cli.cluster.talk.PIECE_BYTES",
    1 << 20: "cli.run_logs.PIECE client.archive.IN_A_CONFIG_MAP.packed client.image_registry.ANSWER_BYTES "
    "client.serve_files.MOST_BYTES cluster.kube.connection.STREAM_BYTES history.job_history.SEGMENT_BYTES "
    "local.record_files.LONGEST_LINE sdk.functions.MOST_BYTES",
    2 << 20: "client.pod_exec.LONGEST_LINE",
    4 << 20: "api.job_file.LONGEST_TEXT cluster.kube.api_client.PAGE_BYTES",
    8 << 20: "client.cluster.LARGEST_BYTES cluster.store.PARSED_BYTES",
    64 << 20: "client.archive.BY_EXEC.packed client.archive.IN_A_CONFIG_MAP.unpacked local.files.LARGEST_BYTES",
    256 << 20: "client.unpack.MOST_BYTES",
}
"""The most that is read, kept or shown: characters, bytes, or how many."""


@pytest.mark.parametrize(
    ("most", "bound"), [(most, bound) for most, bounds in MOST.items() for bound in bounds.split()]
)
def test_no_more_is_read(most: int, bound: str) -> None:
    assert 0 < resolve_name(f"ddpjob_operator.{bound}") <= most
