"""The dashboard of one job, from the metrics of its supervisors."""

from .parts import BYTES, COUNT, SECONDS, SHARE, Panel, Query, figure, graph, labels, page, rise

JOB = 'namespace="$namespace", job_name="$job"'
RANK_SECONDS = f"ddpjob_trainer_rank_seconds{{{JOB}}}"
RATE = "$__rate_interval"


def job() -> str:
    """The dashboard of one job."""
    return page(
        "ddpjob-job",
        "Job",
        "How training goes, and which rank holds it up. It needs the metrics of the job's supervisors, with the "
        "label job_name that the chart's PodMonitor adds. Single ranks are shown in a world of at most 64 processes.",
        [
            labels("namespace", "label_values(ddpjob_trainer_attempt, namespace)"),
            labels("job", 'label_values(ddpjob_trainer_attempt{namespace="$namespace"}, job_name)'),
        ],
        {
            "Now": _now(),
            "Training": [_rate(), _loss(), _samples(), _metrics()],
            "Ranks": [_stragglers(), _alone(), _data(), _parts(), _memory()],
            "Failures and checkpoints": [_silence(), _checkpoints(), _incidents(), _attempts()],
        },
    )


def _of(metric: str) -> str:
    """A metric of the gang, which its present coordinator reports."""
    return f"max(ddpjob_trainer_{metric}{{{JOB}}})"


def _by_rank(metric: str) -> str:
    """A metric of each rank. Rank 0's supervisor reports all ranks, and every other one its own: each comes twice."""
    return f"max by (rank) (ddpjob_trainer_{metric}{{{JOB}}})"


def _now() -> list[Panel]:
    phase = (
        f"max by (phase) (ddpjob_trainer_phase{{{JOB}}} and on (namespace, pod) "
        f"ddpjob_trainer_restarts_in_place_total{{{JOB}}}) == 1"
    )
    left = f"({_of('steps_planned')} - {_of('step')}) * {_of('step_seconds')}"
    return [
        figure("State", "What the gang is doing.", Query(phase, "{{phase}}"), names=True, base="text"),
        figure(
            "Progress", "Steps finished, of those planned.", f"{_of('step')} / {_of('steps_planned')}", unit=SHARE
        ),
        figure("Time left", "At the present time for each step.", left, unit=SECONDS, base="text"),
        figure(
            "Since the last step",
            "The share of the time that a step may take before the gang counts as stalled.",
            f"(time() - {_of('last_step_timestamp_seconds')}) / {_of('stall_limit_seconds')}",
            unit=SHARE,
            thresholds=[(0.5, "orange"), (1, "red")],
        ),
        figure(
            "Checkpoint age",
            "What a failure would cost now, at least.",
            f"time() - {_of('checkpoint_timestamp_seconds')}",
            unit=SECONDS,
            base="text",
        ),
        figure("Attempt", "How often the gang has started.", _of("attempt"), base="text"),
    ]


def _rate() -> Panel:
    return graph(
        "Steps per second",
        "Finished steps, and those of them that an earlier attempt had finished too.",
        Query(f"sum(rate(ddpjob_trainer_steps_total{{{JOB}}}[{RATE}]))", "steps"),
        Query(f"sum(rate(ddpjob_trainer_repeated_steps_total{{{JOB}}}[{RATE}])) > 0", "repeated"),
    )


def _loss() -> Panel:
    return graph("Loss", "From the lowest rank that reports it.", Query(_of("loss"), "loss"), zero=False)


def _samples() -> Panel:
    return graph("Samples per second", "Of all processes.", Query(_of("samples_per_second"), "samples"))


def _metrics() -> Panel:
    each = f"max by (name, rank) (ddpjob_trainer_rank_metric{{{JOB}}})"
    return graph(
        "Metrics of the program", "Means over the ranks.", Query(f"avg by (name) ({each})", "{{name}}"), zero=False
    )


def _stragglers() -> Panel:
    return graph(
        "Stragglers",
        "Ranks that hold up the others: how many times as long as usual they take for their own part of a step. "
        "Mostly there are none.",
        Query(_by_rank("straggler_slowdown"), "rank {{rank}}"),
        width=8,
    )


def _alone() -> Panel:
    alone = f'max by (rank, part) (ddpjob_trainer_rank_seconds{{{JOB}, part=~"data|forward|optimizer"}})'
    return graph(
        "Slowest ranks",
        "How long each rank takes for its own part of a step: data, forward and optimizer. In backward, the others "
        "wait for the slowest. The five slowest.",
        Query(f"topk(5, sum by (rank) ({alone}))", "rank {{rank}}"),
        unit=SECONDS,
        width=8,
    )


def _data() -> Panel:
    data = f'max by (rank) (ddpjob_trainer_rank_seconds{{{JOB}, part="data"}})'
    return graph(
        "Waiting for data",
        "Share of a step. The five ranks that wait longest.",
        Query(f"topk(5, {data} / on () group_left () {_of('step_seconds')})", "rank {{rank}}"),
        unit=SHARE,
        width=8,
    )


def _parts() -> Panel:
    each = f"max by (part, rank) ({RANK_SECONDS})"
    return graph(
        "Parts of a step",
        "Means over the ranks. Communication runs beside backward.",
        Query(f"avg by (part) ({each})", "{{part}}"),
        unit=SECONDS,
    )


def _memory() -> Panel:
    return graph(
        "Memory",
        "As each process reports it. The five that use most.",
        Query(f"topk(5, {_by_rank('memory_bytes')})", "rank {{rank}}"),
        unit=BYTES,
    )


def _silence() -> Panel:
    return graph(
        "Since the last step",
        "If it reaches the limit, the gang counts as stalled.",
        Query(f"time() - {_of('last_step_timestamp_seconds')}", "since the last step"),
        Query(_of("stall_limit_seconds"), "limit"),
        unit=SECONDS,
    )


def _checkpoints() -> Panel:
    return graph(
        "Steps since the last checkpoint",
        "What would be repeated after a failure.",
        Query(f"{_of('step')} - {_of('checkpoint_step')}", "steps"),
        unit=COUNT,
    )


def _incidents() -> Panel:
    incidents = rise(f"ddpjob_trainer_incidents_total{{{JOB}}}", "$__interval", "ddpjob_trainer_attempt")
    return graph(
        "Restarts in place by cause",
        "Failures that were answered without new pods. Pods that are replaced are on the team's dashboard.",
        Query(f"sum by (cause) ({incidents}) > 0", "{{cause}}"),
        bars=True,
    )


def _attempts() -> Panel:
    return graph("Attempts", "Each start of the gang is one more.", Query(_of("attempt"), "attempt"), unit=COUNT)
