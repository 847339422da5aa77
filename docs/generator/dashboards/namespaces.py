"""The dashboards of all namespaces and of a team."""

from .parts import SECONDS, SHARE, Column, Panel, Query, figure, gauges, graph, labels, listing, page, rise

NAMESPACE = 'namespace=~"$namespace"'
WAITING = f'ddpjob_jobs{{{NAMESPACE}, state=~"Pending|Queued|Starting"}}'
STALLS = f'ddpjob_restarts_total{{{NAMESPACE}, cause="Stalled"}}'
GOODPUT = f'ddpjob_time_seconds_total{{{NAMESPACE}, kind="goodput"}}'
COUNTED = f'ddpjob_time_seconds_total{{{NAMESPACE}, kind!="other"}}'
LOST = f'ddpjob_gpu_seconds_total{{{NAMESPACE}, kind!~"goodput|other"}}'
LOST_MEANING = "The kind `other` is left out: nobody counts the steps of these jobs."
WAIT_AGE = f"ddpjob_pending_age_seconds{{{NAMESPACE}}}"
WAIT_MEANING = "Of the job that has waited longest until it runs."
DIVERGED = f"ddpjob_diverged_jobs{{{NAMESPACE}}}"
RESTARTS, DISRUPTIONS = (f"ddpjob_{name}_total{{{NAMESPACE}}}" for name in ("restarts", "disruptions"))
STATES = {"Running": "green", "Restarting": "orange", "Stalled": "red"}
FINAL = {"Succeeded": "green", "Failed": "red"}
KINDS = {
    "goodput": "green",
    "wasted_progress_from_disruption": "orange",
    "infrastructure_recovery_from_disruption": "dark-orange",
    "stalled": "red",
}
"""Colors of states and kinds; Grafana chooses those of the others."""
HOUR = 3600
TEAM = "/d/ddpjob-team?${datasource:queryparam}&var-namespace=${__value.raw}&${__url_time_range}"
JOB = (
    "/d/ddpjob-job?${datasource:queryparam}&var-namespace=${__data.fields.namespace}&var-job=${__value.raw}"
    "&${__url_time_range}"
)


def fleet() -> str:
    """The dashboard of all namespaces."""
    return page(
        "ddpjob-fleet",
        "Fleet",
        "What all training jobs do, which of them wait or stand still, and what becomes of the GPUs' time.",
        [labels("namespace", "label_values(ddpjob_jobs, namespace)", several=True)],
        {
            "Now": [*_now(), _namespaces()],
            "Jobs": [_states(), _use(), _finished(), _steps()],
            "Lost time": [_goodput(), _lost(), _restarts(), _disruptions()],
            "Starts and checkpoints": [_start_quantiles(), *_ages()],
        },
    )


def team() -> str:
    """The dashboard of one team, which may have several namespaces."""
    return page(
        "ddpjob-team",
        "Team",
        "What the jobs of a team do, what holds them up, and what becomes of their GPUs' time.",
        [labels("namespace", "label_values(ddpjob_jobs, namespace)", several=True)],
        {
            "Now": [*_now(), _jobs()],
            "Jobs": [_states(), _use(), _finished(), _steps()],
            "Lost time": [_goodput(), _lost(), _restarts(), _disruptions()],
            "Starts and checkpoints": [_start_means(), *_ages()],
        },
    )


def _now() -> list[Panel]:
    running = f'sum(ddpjob_jobs{{{NAMESPACE}, state="Running"}})'
    failed = rise(f'ddpjob_jobs_finished_total{{{NAMESPACE}, state="Failed"}}', "$__range")
    return [
        figure("Running", "Jobs whose trainer runs in all pods.", running, width=3),
        figure(
            "Waiting",
            "Jobs without all of their pods: in a queue, for a place, or for an image.",
            f"sum({WAITING})",
            thresholds=[(1, "blue")],
            width=3,
        ),
        figure("Longest wait", WAIT_MEANING, f"max({WAIT_AGE})", unit=SECONDS, thresholds=[(900, "orange")], width=3),
        figure(
            "Stalls",
            "Restarts in the time shown because no step finished any more.",
            f"sum({rise(STALLS, '$__range')}) or vector(0)",
            thresholds=[(0.5, "red")],
            width=3,
        ),
        figure(
            "Diverged",
            "Jobs whose loss is not a finite number, also if they failed for that reason in the last hour.",
            f"sum({DIVERGED})",
            thresholds=[(1, "red")],
            width=3,
        ),
        figure(
            "Failed",
            "Jobs that have failed in the time shown.",
            f"sum({failed})",
            thresholds=[(0.5, "orange")],
            width=3,
        ),
        figure(
            "Goodput",
            "Share of the jobs' time in which steps finished for the first time.",
            f"sum(increase({GOODPUT}[$__range])) / (sum(increase({COUNTED}[$__range])) > 0)",
            unit=SHARE,
            base="red",
            thresholds=[(0.5, "orange"), (0.8, "green")],
            width=3,
        ),
        figure(
            "GPU-hours lost",
            f"GPU-hours in the time shown that were not goodput. {LOST_MEANING}",
            f"sum(increase({LOST}[$__range])) / {HOUR}",
            base="text",
            width=3,
        ),
    ]


def _namespaces() -> Panel:
    return listing(
        "Namespaces",
        "Who waits, who stands still, and what it costs. A click on a namespace opens its dashboard.",
        "namespace",
        [
            Column("Running", f'sum by (namespace) (ddpjob_jobs{{{NAMESPACE}, state="Running"}})'),
            Column("Waiting", f"sum by (namespace) ({WAITING})", thresholds=((1, "blue"),)),
            Column("Longest wait", f"max by (namespace) ({WAIT_AGE})", SECONDS, ((900, "orange"),)),
            Column("Stalls", f"sum by (namespace) ({rise(STALLS, '$__range')})", thresholds=((0.5, "red"),)),
            Column("Diverged", f"sum by (namespace) ({DIVERGED})", thresholds=((1, "red"),)),
            Column(
                "Checkpoint age",
                f"max by (namespace) (ddpjob_checkpoint_age_seconds{{{NAMESPACE}}})",
                SECONDS,
                ((7200, "orange"),),
            ),
            Column("Goodput", _goodput_share("increase", "$__range"), SHARE),
            Column("GPU-hours lost", f"sum by (namespace) (increase({LOST}[$__range])) / {HOUR}"),
            Column("Restarts", f"sum by (namespace) ({rise(RESTARTS, '$__range')})"),
            Column(
                "Budget used",
                f"max by (namespace) (ddpjob_restart_budget_used_ratio{{{NAMESPACE}}})",
                SHARE,
                ((0.5, "orange"), (1, "red")),
            ),
        ],
        link=TEAM,
    )


def _jobs() -> Panel:
    def of_jobs(metric: str) -> str:
        return f"max by (namespace, job_name) (ddpjob_trainer_{metric}{{{NAMESPACE}}})"

    return listing(
        "Jobs",
        "Jobs whose supervisors Prometheus scrapes. A click on a job opens its dashboard.",
        "job_name",
        [
            Column("Step", of_jobs("step")),
            Column("Progress", f"{of_jobs('step')} / {of_jobs('steps_planned')}", SHARE),
            Column("Since the last step", f"time() - {of_jobs('last_step_timestamp_seconds')}", SECONDS),
            Column("Stall limit", of_jobs("stall_limit_seconds"), SECONDS),
            Column("Checkpoint age", f"time() - {of_jobs('checkpoint_timestamp_seconds')}", SECONDS),
            Column("Attempt", of_jobs("attempt")),
        ],
        link=JOB,
    )


def _states() -> Panel:
    return graph(
        "Jobs by state",
        "Finished jobs are left out.",
        Query(f'sum by (state) (ddpjob_jobs{{{NAMESPACE}, state!~"Succeeded|Failed"}}) > 0', "{{state}}"),
        stacked=True,
        colors=STATES,
    )


def _use() -> Panel:
    return graph(
        "GPUs by use",
        "How many GPUs the jobs hold, by what becomes of their time. Jobs without GPUs are left out.",
        Query(f"sum by (kind) (rate(ddpjob_gpu_seconds_total{{{NAMESPACE}}}[$__rate_interval])) > 0", "{{kind}}"),
        stacked=True,
        colors=KINDS,
    )


def _finished() -> Panel:
    finished = rise(f"ddpjob_jobs_finished_total{{{NAMESPACE}}}", "$__interval")
    query = Query(f"sum by (state) ({finished})", "{{state}}")
    return graph("Finished jobs", "By final state.", query, bars=True, colors=FINAL)


def _steps() -> Panel:
    def steps(metric: str) -> str:
        return f"sum by (namespace) (rate(ddpjob_{metric}_total{{{NAMESPACE}}}[$__rate_interval]))"

    return graph(
        "Steps per second",
        "A hung job finishes none. Repeated steps had been finished before a restart, but not saved.",
        Query(f"topk(10, {steps('steps')})", "{{namespace}}"),
        Query(f"topk(10, {steps('repeated_steps')} > 0)", "{{namespace}}, repeated"),
    )


def _goodput() -> Panel:
    share = _goodput_share("rate", "$__rate_interval")
    meaning = "Share of the jobs' time in which steps finished for the first time. The ten lowest."
    return graph("Goodput", meaning, Query(f"bottomk(10, {share})", "{{namespace}}"), unit=SHARE)


def _goodput_share(function: str, window: str) -> str:
    good, counted = (f"sum by (namespace) ({function}({counter}[{window}]))" for counter in (GOODPUT, COUNTED))
    return f"{good} / ({counted} > 0)"


def _lost() -> Panel:
    return gauges(
        "GPU-hours lost, by kind",
        f"In the time shown. {LOST_MEANING}",
        Query(f"sort_desc(sum by (kind) (increase({LOST}[$__range]))) / {HOUR}", "{{kind}}"),
    )


def _restarts() -> Panel:
    return graph(
        "Restarts by cause",
        "Restarts that count against their job's budget.",
        Query(f"sum by (cause) ({rise(RESTARTS, '$__interval')}) > 0", "{{cause}}"),
        bars=True,
    )


def _disruptions() -> Panel:
    return graph(
        "Disruptions by cause",
        "Restarts that do not count against the budget.",
        Query(f"sum by (cause) ({rise(DISRUPTIONS, '$__interval')}) > 0", "{{cause}}"),
        bars=True,
    )


def _start_quantiles() -> Panel:
    buckets = "sum by (le, part) (increase(ddpjob_start_seconds_bucket[$__range]))"
    return gauges(
        "Starts by part",
        "How long each part of a start took in the time shown, in all namespaces.",
        Query(f"histogram_quantile(0.5, {buckets})", "{{part}}, median"),
        Query(f"histogram_quantile(0.9, {buckets})", "{{part}}, 9 of 10"),
        unit=SECONDS,
    )


def _start_means() -> Panel:
    total, number = (
        f"sum by (part) (increase(ddpjob_namespace_start_seconds_{name}{{{NAMESPACE}}}[$__range]))"
        for name in ("sum", "count")
    )
    return gauges(
        "Starts by part",
        "How long each part of a start took in the time shown, on average.",
        Query(f"{total} / ({number} > 0)", "{{part}}"),
        unit=SECONDS,
    )


def _ages() -> list[Panel]:
    def age(metric: str) -> Query:
        oldest = f"max by (namespace) (ddpjob_{metric}_age_seconds{{{NAMESPACE}}})"
        return Query(f"topk(10, {oldest})", "{{namespace}}")

    return [
        graph("Longest wait", f"{WAIT_MEANING} The ten longest.", age("pending"), unit=SECONDS),
        graph(
            "Longest time without a step",
            "Of a job that reports steps. An evaluation or a save is no step. The ten longest.",
            age("step"),
            unit=SECONDS,
        ),
        graph(
            "Age of checkpoints",
            "Of the job for which it is largest: what a failure would cost now. The ten largest.",
            age("checkpoint"),
            unit=SECONDS,
        ),
    ]
