"""The dashboard of the operator itself."""

from .parts import BYTES, SECONDS, Panel, Query, figure, graph, labels, page, rise

RATE = "$__rate_interval"
OPERATOR = 'job="$operator"'
LEADER = f"ddpjob_leader{{{OPERATOR}}}"
QUEUE = f"max(ddpjob_workqueue_depth{{{OPERATOR}}} and {LEADER} == 1)"


def operator() -> str:
    """The dashboard of the operator itself."""
    return page(
        "ddpjob-operator",
        "Operator",
        "Whether the operator leads, keeps up, and reaches the API server and the jobs' supervisors.",
        [labels("operator", "label_values(ddpjob_leader, job)")],
        {
            "Now": _now(),
            "Rounds": [_rounds(), _round_seconds(), _queue(), _trouble()],
            "Requests": [_requests(), _refused(), _status_reads(), _namespaces()],
            "Replicas": [_leader(), _versions(), _cpu(), _memory()],
        },
    )


def _now() -> list[Panel]:
    def risen(counter: str) -> str:
        return f"sum(increase(ddpjob_{counter}[$__range]))"

    return [
        figure(
            "Leaders",
            "Replicas that lead. It must be one.",
            f"sum({LEADER})",
            base="red",
            thresholds=[(1, "green"), (2, "red")],
        ),
        figure("Replicas", "Replicas that Prometheus scrapes.", f"count({LEADER})", base="text"),
        figure(
            "Jobs in the queue",
            "Jobs that wait for a round, at the leader.",
            QUEUE,
            thresholds=[(100, "red")],
        ),
        figure(
            "Bugs",
            "Rounds in the time shown that ended with a bug of the operator; its log has the tracebacks.",
            risen(f'reconciles_total{{{OPERATOR}, result="bug"}}'),
            thresholds=[(0.5, "red")],
        ),
        figure(
            "Undone actions",
            "Actions in the time shown that had no effect: somebody undoes them, or hides them from the operator.",
            risen(f"ineffective_actions_total{{{OPERATOR}}}"),
            thresholds=[(0.5, "orange")],
        ),
        figure(
            "Events lost",
            "Kubernetes events in the time shown that could not be written.",
            risen(f"events_lost_total{{{OPERATOR}}}"),
            thresholds=[(0.5, "orange")],
        ),
    ]


def _rounds() -> Panel:
    rounds = f"sum by (result) (rate(ddpjob_reconciles_total{{{OPERATOR}}}[{RATE}]))"
    return graph("Rounds per second", "By how they ended.", Query(rounds, "{{result}}"))


def _round_seconds() -> Panel:
    buckets = f"sum by (le) (rate(ddpjob_reconcile_seconds_bucket{{{OPERATOR}}}[{RATE}]))"
    return graph(
        "Duration of a round",
        "Its requests to the API server included.",
        Query(f"histogram_quantile(0.5, {buckets})", "median"),
        Query(f"histogram_quantile(0.99, {buckets})", "99 of 100"),
        unit=SECONDS,
    )


def _queue() -> Panel:
    return graph(
        "Jobs in the queue",
        "Jobs that wait for a round, at the leader. If the queue stays long, the operator does not keep up.",
        Query(QUEUE, "jobs"),
        thresholds=[(100, "red")],
    )


def _trouble() -> Panel:
    unreadable = rise(f"ddpjob_unreadable_objects_total{{{OPERATOR}}}", "$__interval")
    return graph(
        "Trouble",
        "Undone actions, lost events, and objects that this version cannot read.",
        Query(f"sum(increase(ddpjob_ineffective_actions_total{{{OPERATOR}}}[$__interval]))", "undone actions"),
        Query(f"sum(increase(ddpjob_events_lost_total{{{OPERATOR}}}[$__interval]))", "lost events"),
        Query(f"sum({unreadable}) or vector(0)", "unreadable objects"),
        bars=True,
    )


def _requests() -> Panel:
    requests = f"sum by (method, resource) (rate(ddpjob_api_requests_total{{{OPERATOR}}}[{RATE}]))"
    return graph(
        "Requests to the API server per second",
        "The ten most frequent; watches are left out.",
        Query(f"topk(10, {requests})", "{{method}} {{resource}}"),
    )


def _refused() -> Panel:
    refused = f'sum by (code, resource) (rate(ddpjob_api_requests_total{{{OPERATOR}, code!~"2.."}}[{RATE}]))'
    return graph(
        "Requests without success per second",
        "By the API server's answer; `none` if it did not answer.",
        Query(refused, "{{code}} {{resource}}"),
    )


def _status_reads() -> Panel:
    reads = f"sum by (result) (rate(ddpjob_status_reads_total{{{OPERATOR}}}[{RATE}]))"
    return graph(
        "Reads of supervisors' status per second",
        "Supervisors that are `silent` cannot be reached; where nothing listens, the read is `refused`.",
        Query(reads, "{{result}}"),
    )


def _namespaces() -> Panel:
    return graph(
        "Namespaces that cannot be watched",
        "Empty if all is well, or if the operator is not limited to certain namespaces.",
        Query(f"max by (namespace) (1 - ddpjob_namespace_watched{{{OPERATOR}}}) > 0", "{{namespace}}"),
    )


def _leader() -> Panel:
    return graph("Leader", "1 for the replica that leads.", Query(LEADER, "{{instance}}"))


def _versions() -> Panel:
    versions = f"count by (version, api_version) (ddpjob_build_info{{{OPERATOR}}})"
    return graph(
        "Replicas by version",
        "Two versions, while an upgrade is under way.",
        Query(versions, "{{version}} ({{api_version}})"),
    )


def _cpu() -> Panel:
    return graph("CPU", "Cores.", Query(f"rate(process_cpu_seconds_total{{{OPERATOR}}}[{RATE}])", "{{instance}}"))


def _memory() -> Panel:
    resident = f"process_resident_memory_bytes{{{OPERATOR}}}"
    return graph("Memory", "Resident.", Query(resident, "{{instance}}"), unit=BYTES)
