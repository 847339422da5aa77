"""How long anybody in a pod waits for something, and how much is read, kept or told, room by room.

The tests of these rooms take the numbers from the code, so they do not notice another number.
"""

from pkgutil import resolve_name

import pytest

LONGEST: dict[float, str] = {
    0.01: "ddpjob.checkpoint.common_start.PAUSE_SECONDS ddpjob_supervisor.gang.node_attempt.STORE_LOOK_SECONDS "
    "ddpjob_supervisor.node.strays.LOOK_SECONDS ddpjob_supervisor.node.zygote.LOOK_SECONDS "
    "ddpjob_supervisor.watch.asking.LOOK_SECONDS",
    0.02: "ddpjob_rank.places.master.RETRY_SECONDS ddpjob_rank.reporting.agreement.PAUSE_SECONDS "
    "ddpjob_supervisor.history.tee.LOOK_SECONDS",
    0.05: "ddpjob_supervisor.gang.membership.LOCATING_LOOK_SECONDS ddpjob_supervisor.history.tee.PAUSE_SECONDS",
    0.1: "ddpjob_rank.machine.listening.FULL_SECONDS ddpjob_supervisor.output.PATIENCE_SECONDS "
    "ddpjob_supervisor.page.status.ANSWER_SECONDS ddpjob_trainer.recording.recorder.PATIENCE_SECONDS",
    0.2: "ddpjob.checkpoint.reading.PAUSE_SECONDS ddpjob_supervisor.preflight.names.FIRST_PAUSE",
    0.25: "ddpjob_supervisor.gang.node_attempt.STORE_SECONDS ddpjob_supervisor.watch.evidence.WRITE_SECONDS "
    "ddpjob_supervisor.watch.relay.LAST_WORDS_SECONDS ddpjob_supervisor.watch.stacks.CHILDREN_SECONDS",
    0.5: "ddpjob_rank.console.PARTIAL_SECONDS ddpjob_supervisor.gang.coordinator_service.LOOK_SECONDS "
    "ddpjob_supervisor.gang.membership.BEAT_SECONDS ddpjob_supervisor.history.history.LEFT_SECONDS "
    "ddpjob_supervisor.page.curve.CLOSING_SECONDS ddpjob_supervisor.page.status.REQUEST_SECONDS "
    "ddpjob_supervisor.watch.asking.HANDLER_SECONDS ddpjob_supervisor.watch.asking.THREAD_SECONDS "
    "ddpjob_supervisor.watch.ras.GREETING_SECONDS",
    1: "ddpjob.checkpoint.common_start.LONGEST_PAUSE_SECONDS ddpjob.checkpoint.object_store.PAUSE_SECONDS "
    "ddpjob_rank.reporting.agreement_rules.REFUSED_SECONDS ddpjob_rank.reporting.agreement_rules.SURVEY_SECONDS "
    "ddpjob_rank.reporting.teller.MEMORY_SECONDS ddpjob_supervisor.gang.coordinator.SETTLING_SECONDS "
    "ddpjob_supervisor.gang.coordinator_service.STALL_LOOK_SECONDS ddpjob_supervisor.gang.link.PING_SECONDS "
    "ddpjob_supervisor.gang.rendezvous.LATEST_SECONDS ddpjob_supervisor.history.journal.SECONDS "
    "ddpjob_supervisor.output.LAST_SECONDS ddpjob_supervisor.page.answers.LOOK_SECONDS "
    "ddpjob_supervisor.page.curve.POINT_SECONDS ddpjob_supervisor.page.progress.POINT_SECONDS "
    "ddpjob_supervisor.taking_part.REAPING_SECONDS ddpjob_supervisor.web.CLOSING_SECONDS",
    2: "ddpjob_preflight.child.REAPING_SECONDS ddpjob_rank.reporting.agreement.END_SECONDS "
    "ddpjob_rank.reporting.agreement.LONGEST_PAUSE_SECONDS ddpjob_rank.reporting.agreement_rules.ORDER_SECONDS "
    "ddpjob_supervisor.gang.coordinator_service.AGAIN_SECONDS ddpjob_supervisor.gang.link.CONNECT_SECONDS "
    "ddpjob_supervisor.gang.local_ranks.LAST_SECONDS ddpjob_supervisor.gang.membership.BEAT_SECONDS_AT_MOST "
    "ddpjob_supervisor.history.history.CLOSING_SECONDS ddpjob_supervisor.page.kept_result.LAST_SECONDS "
    "ddpjob_supervisor.preflight.names.LONGEST_PAUSE ddpjob_supervisor.watch.learned_limits.SECONDS "
    "ddpjob_supervisor.watch.stalls.LATE_SECONDS",
    3: "ddpjob.training.rank_states.SURVEY_SECONDS ddpjob_preflight.collective.MARGIN_SECONDS "
    "ddpjob_supervisor.gang.coordinator.PARTING_SECONDS ddpjob_supervisor.gang.local_ranks.DEVICE_SECONDS "
    "ddpjob_supervisor.gang.local_ranks.HEEDING_SECONDS ddpjob_supervisor.page.stragglers.SAMPLE_SECONDS "
    "ddpjob_supervisor.watch.stopped.SILENT_SECONDS",
    3.5: "ddpjob_supervisor.watch.ras.SECONDS",
    5: "ddpjob.checkpoint.store_client.CONNECT_SECONDS ddpjob.data.replay_tracker.PATIENCE_SECONDS "
    "ddpjob_rank.places.master.CONNECT_SECONDS ddpjob_rank.recording.event_file.WARNING_SECONDS "
    "ddpjob_rank.reporting.agreement_rules.ARRIVING_SECONDS ddpjob_rank.reporting.agreement_rules.COUNTS_SECONDS "
    "ddpjob_rank.reporting.agreement_rules.RETURN_SECONDS "
    "ddpjob_rank.reporting.agreement_rules.SILENT_LEADER_SECONDS "
    "ddpjob_rank.reporting.agreement_wire.CONNECT_SECONDS ddpjob_rank.reporting.copy_handover.ANSWER_SECONDS "
    "ddpjob_rank.reporting.report.TAKE_OVER_SECONDS ddpjob_supervisor.gang.coordinator.EXAMINING_SECONDS "
    "ddpjob_supervisor.gang.coordinator_service.ANSWERING_SECONDS "
    "ddpjob_supervisor.gang.coordinator_service.PATIENT_SECONDS ddpjob_supervisor.gang.rendezvous.PATIENT_SECONDS "
    "ddpjob_supervisor.node.strays.ENDING_SECONDS ddpjob_supervisor.page.first_page.AGAIN_SECONDS "
    "ddpjob_supervisor.watch.nvidia_driver.SECONDS ddpjob_supervisor.watch.stalls.OLD_SECONDS "
    "ddpjob_supervisor.watch.stalls.PAUSE_SECONDS ddpjob_trainer.recording.recorder.CLOSING_SECONDS",
    10: "ddpjob.checkpoint.interval.FIRST_SECONDS ddpjob.training.rank_states.PASSED_SECONDS "
    "ddpjob_supervisor.gang.link.SILENT_SECONDS ddpjob_supervisor.gang.membership.LOCATING_SECONDS "
    "ddpjob_supervisor.node.zygote.TRIAL_SECONDS",
    15: "ddpjob.checkpoint.store_client.RETRY_SECONDS ddpjob_supervisor.gang.rendezvous.ANOTHER_SECRET_SECONDS "
    "ddpjob_supervisor.hold.reception.GOING_SECONDS",
    20: "ddpjob_rank.machine.listening.SILENT_SECONDS ddpjob_supervisor.gang.control.PROOF_SECONDS",
    30: "ddpjob.checkpoint.reading.PATIENCE_SECONDS ddpjob.training.save_settings.GRACE_SECONDS "
    "ddpjob_rank.reporting.agreement.UNSENT_SECONDS ddpjob_supervisor.gang.link.NAME_SECONDS "
    "ddpjob_supervisor.gang.membership.GPU_SECONDS ddpjob_supervisor.gang.settings.GRACE_SECONDS "
    "ddpjob_supervisor.history.tee.SLOW_SECONDS ddpjob_supervisor.page.answers.LONGEST_WAIT_SECONDS "
    "ddpjob_supervisor.page.status.MEMORY_SECONDS ddpjob_supervisor.preflight.running.LOOK_SECONDS",
    45: "ddpjob_rank.reporting.agreement_rules.MISMATCH_SECONDS ddpjob_supervisor.gang.rendezvous.MUTE_SECONDS",
    60: "ddpjob.checkpoint.sharded.RANKS_SECONDS ddpjob_preflight.collective.DEFAULT_SECONDS "
    "ddpjob_supervisor.gang.membership.DONE_SECONDS ddpjob_supervisor.history.journal.SECONDS_AT_MOST "
    "ddpjob_supervisor.hold.reception.SPEAKING_SECONDS ddpjob_supervisor.page.kept_result.SECONDS "
    "ddpjob_supervisor.preflight.running.GPU_SECONDS ddpjob_trainer.options.LOOKING_SECONDS",
    75: "ddpjob_supervisor.page.answers.KEEPALIVE_SECONDS",
    90: "ddpjob.checkpoint.store_client.REQUEST_SECONDS",
    120: "ddpjob_supervisor.history.history.FIRST_SECONDS",
    300: "ddpjob_supervisor.gang.coordinator_service.LATE_SECONDS ddpjob_supervisor.taking_part.NAME_SECONDS",
    600: "ddpjob_rank.limits.JOINING_SECONDS",
    1800: "ddpjob.training.saver.FAILING_SECONDS",
    3600: "ddpjob.checkpoint.interval.MOST_SECONDS",
    86_400: "ddpjob_supervisor.watch.learned_limits.LONGEST_SECONDS",
    31_622_400: "ddpjob_supervisor.main.LONGEST_HOLD_SECONDS",
}
"""Seconds at most: until something is looked at again, given up, or taken for lost."""


@pytest.mark.parametrize(
    ("seconds", "wait"), [(seconds, wait) for seconds, waits in LONGEST.items() for wait in waits.split()]
)
def test_nobody_waits_longer(seconds: float, wait: str) -> None:
    assert 0 < resolve_name(wait) <= seconds


MOST: dict[int, str] = {
    3: "ddpjob.checkpoint.finite.NAMED_PARAMETERS ddpjob.checkpoint.object_store.COMMIT_TRIES "
    "ddpjob.checkpoint.shard_files.NAMED_TENSORS ddpjob.checkpoint.sharded.NAMED_RANKS "
    "ddpjob.training.named.NAMED_DIFFERENCES ddpjob_supervisor.watch.blame.SHOWN "
    "ddpjob_supervisor.watch.heartbeats.TRIES ddpjob_trainer.model.learner.NAMED",
    4: "ddpjob.checkpoint.object_store.PARTS_AT_ONCE ddpjob_trainer.data.fingerprint.DEPTH",
    8: "ddpjob.checkpoint.reading.MOST_AT_ONCE ddpjob.checkpoint.weights.NAMED_THINGS ddpjob_preflight.plan.NAMED "
    "ddpjob_rank.reporting.agreement_warnings.MOST_NAMED ddpjob_supervisor.gang.messages.NAMED "
    "ddpjob_supervisor.page.document.NODES ddpjob_supervisor.page.stragglers.NAMED "
    "ddpjob_supervisor.watch.stacks.CHILDREN_SHOWN ddpjob_trainer.group.stores.MISSING_NAMED",
    10: "ddpjob_rank.running.script.script_reader.CALLS ddpjob_supervisor.gang.settings.DIGITS "
    "ddpjob_supervisor.watch.evidence.ATTEMPTS_KEPT",
    12: "ddpjob.checkpoint.plain_values.SHOWN ddpjob_supervisor.watch.stacks.FRAMES",
    16: "ddpjob_supervisor.gang.messages.INCIDENTS_KEPT ddpjob_supervisor.history.journal.PROCESSES "
    "ddpjob_supervisor.page.document.INCIDENTS ddpjob_supervisor.page.document.METRICS "
    "ddpjob_trainer.data.fingerprint.NUMBERS",
    18: "ddpjob_rank.parsing.DIGITS",
    32: "ddpjob_rank.reporting.teller.ACTIVITY_BYTES ddpjob_rank.running.answering.COLLECTIVES_TOLD "
    "ddpjob_supervisor.page.metrics.CAUSES ddpjob_trainer.model.divergence.NAMED_SAMPLES",
    50: "ddpjob_rank.reporting.result.DEEPEST",
    61: "ddpjob_supervisor.page.progress.POINTS",
    64: "ddpjob_rank.machine.listening.AT_ONCE ddpjob_supervisor.gang.control.STRANGERS "
    "ddpjob_supervisor.gpu.transport.LONGEST ddpjob_supervisor.page.answers.WAITING "
    "ddpjob_supervisor.page.document.PROCESSES ddpjob_supervisor.watch.checkpoint_requests.LONGEST "
    "ddpjob_trainer.data.fingerprint.FILES ddpjob_trainer.recording.recorder.RANKS",
    100: "ddpjob.checkpoint.plain_values.DEEPEST ddpjob.training.training.MOST_BATCHES "
    "ddpjob_examples.images.image.MOST_BROKEN ddpjob_rank.reporting.agreement.ACTED_KEPT "
    "ddpjob_supervisor.gang.once.MOST ddpjob_trainer.model.divergence.MOST_IN_A_ROW",
    128: "ddpjob_rank.reporting.agreement_wire.NAMES_BYTES ddpjob_supervisor.page.answers.CONNECTIONS",
    200: "ddpjob_rank.failure.failure_report.SENTENCE_BYTES ddpjob_rank.running.answering.MESSAGE_CHARACTERS "
    "ddpjob_supervisor.gang.once.LONGEST",
    255: "ddpjob_supervisor.gang.judging.MOST_CODE",
    256: "ddpjob_rank.failure.failure_report.NAME_BYTES ddpjob_rank.machine.listening.SILENT "
    "ddpjob_rank.reporting.agreement_wire.GREETING_BYTES ddpjob_rank.reporting.agreement_wire.LINE_BYTES "
    "ddpjob_supervisor.history.journal.ITEM_BYTES",
    512: "ddpjob_rank.failure.failure_report.MESSAGE_BYTES ddpjob_supervisor.gang.control.BACKLOG "
    "ddpjob_supervisor.page.first_page.LONGEST",
    1000: "ddpjob_supervisor.output.MOST ddpjob_supervisor.watch.learned_limits.MOST_STALLS",
    1024: "ddpjob_rank.reporting.result.MOST_BITS ddpjob_trainer.group.stores.LONGEST_KEY",
    2048: "ddpjob_rank.reporting.result.STATUS_BYTES ddpjob_supervisor.page.answers.LINE_BYTES",
    2500: "ddpjob_supervisor.gang.settings.LONGEST_INCIDENT",
    4 << 10: "ddpjob_rank.failure.failure_report.REPORT_BYTES ddpjob_rank.reporting.heartbeat.FILE_BYTES "
    "ddpjob_supervisor.gang.link.FIRST_BYTES ddpjob_supervisor.gang.secret_file.MOST_BYTES "
    "ddpjob_supervisor.history.secret_values.ADDRESS_BYTES ddpjob_supervisor.history.segments.HEAD_BYTES "
    "ddpjob_supervisor.history.tee.FEW_BYTES ddpjob_supervisor.watch.learned_limits.LARGEST_BYTES "
    "ddpjob_supervisor.watch.relay.LONGEST_LINE ddpjob_supervisor.watch.relay.WHOLE_BYTES",
    10_000: "ddpjob_rank.recording.event_file.MOST ddpjob_rank.reporting.agreement_server.NAMES_KEPT "
    "ddpjob_supervisor.node.sent_code.MOST_FILES",
    16_000: "ddpjob_rank.running.script.script_environment.ROOM",
    16 << 10: "ddpjob_supervisor.history.segments.LONGEST_LINE",
    64 << 10: "ddpjob_preflight.child.ANSWER_BYTES ddpjob_rank.reporting.copy_handover.MESSAGE_BYTES "
    "ddpjob_supervisor.history.tee.CHUNK_BYTES ddpjob_supervisor.hold.speak.PIECE "
    "ddpjob_supervisor.hold.words.COMMAND_BYTES ddpjob_supervisor.watch.ras.LONGEST "
    "ddpjob_supervisor.watch.relay.CHUNK_BYTES ddpjob_supervisor.watch.stacks.LOG_CHARACTERS",
    100_000: "ddpjob_rank.running.script.script_reader.NODES",
    256 << 10: "ddpjob_rank.running.script.script_reader.FILE_BYTES ddpjob_supervisor.history.segments.SEGMENT_BYTES",
    512 << 10: "ddpjob_rank.running.script.script_reader.ALL_BYTES ddpjob_supervisor.node.sent_code.PIECE_BYTES",
    1 << 20: "ddpjob.checkpoint.object_store.COPY_BYTES ddpjob_rank.failure.full_storage.PROBE_BYTES "
    "ddpjob_rank.manifests.manifest.MANIFEST_BYTES ddpjob_rank.reporting.agreement_wire.PART_BYTES "
    "ddpjob_rank.reporting.result.LARGEST_BYTES ddpjob_supervisor.node.warm.LINE_BYTES",
    2 << 20: "ddpjob_supervisor.gang.link.LINE_BYTES ddpjob_supervisor.hold.words.LINE_BYTES",
    4 << 20: "ddpjob_supervisor.history.journal.WAITING_BYTES",
    8 << 20: "ddpjob_supervisor.history.journal.EVENT_BYTES",
    16 << 20: "ddpjob.checkpoint.object_store.PART_BYTES ddpjob_preflight.exchange.CPU_BYTES",
    32 << 20: "ddpjob.group.shared_file.PORTION_BYTES ddpjob_supervisor.history.journal.LOG_BYTES",
    64 << 20: "ddpjob_preflight.exchange.GPU_BYTES ddpjob_supervisor.node.sent_code.MOST_PACKED",
    128 << 20: "ddpjob.checkpoint.content.PORTION_BYTES",
    256 << 20: "ddpjob_rank.reporting.agreement_rules.KEPT_BYTES ddpjob_supervisor.node.sent_code.MOST_BYTES",
    999_999_999: "ddpjob_supervisor.history.history.MOST_ATTEMPTS",
    1 << 30: "ddpjob_supervisor.history.targets.LEFT_BYTES",
    2 << 30: "ddpjob_examples.images.tar_index.MOST_CLASSES",
    1 << 36: "ddpjob_rank.reporting.agreement_rules.CONTENT_BYTES",
    8 << 50: "ddpjob_rank.reporting.heartbeat.LARGEST",
}
"""At most: characters, bytes, or how many."""


@pytest.mark.parametrize(
    ("most", "bound"), [(most, bound) for most, bounds in MOST.items() for bound in bounds.split()]
)
def test_no_more_is_read_kept_or_told(most: int, bound: str) -> None:
    assert 0 < resolve_name(bound) <= most
