"""The operator's metrics about itself, for Prometheus."""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from ddpjob_operator.api.contract import VERSION

disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY = CollectorRegistry()

BUILD = Gauge(
    "ddpjob_build_info",
    "Always 1; the labels are the operator's version and the version of the type DDPJob",
    ["version", "api_version"],
    registry=REGISTRY,
)
ROUNDS = Counter("ddpjob_reconciles", "Rounds of reconciliation, by how they ended", ["result"], registry=REGISTRY)
ROUND_SECONDS = Histogram(
    "ddpjob_reconcile_seconds",
    "Duration of a round, including its requests",
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
    registry=REGISTRY,
)
IN_VAIN = Counter(
    "ddpjob_ineffective_actions",
    "How often a job's actions had no effect, so that their repetition was delayed",
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge(
    "ddpjob_workqueue_depth", "Jobs that wait for a round, including those whose last round failed", registry=REGISTRY
)
API_REQUESTS = Counter(
    "ddpjob_api_requests",
    "Requests to the API server except watches; the code is `none` if it did not answer",
    ["method", "resource", "code"],
    registry=REGISTRY,
)
STATUS_READS = Counter(
    "ddpjob_status_reads",
    "Reads of supervisors' status: `ok`, `refused` (nothing listens there), `silent`, `unreadable` or `bug`",
    ["result"],
    registry=REGISTRY,
)
NAMESPACE_WATCHED = Gauge(
    "ddpjob_namespace_watched",
    "1 while the operator runs the jobs of a namespace, 0 while it cannot; absent if the operator is not limited to "
    "certain namespaces",
    ["namespace"],
    registry=REGISTRY,
)
OVERLAPS = Gauge(
    "ddpjob_overlapping_operators",
    "In how many namespaces other operators run jobs of the same class, each operator counted; the log and /readyz "
    "name them",
    registry=REGISTRY,
)
DEFAULTS_VALID = Gauge(
    "ddpjob_defaults_valid",
    "1 while the operator uses the present version of the organisation's defaults, 0 while it does not understand it",
    registry=REGISTRY,
)
LEADER = Gauge("ddpjob_leader", "1 while this replica leads", registry=REGISTRY)
UNREADABLE = Counter(
    "ddpjob_unreadable_objects",
    "Objects that this version cannot read and therefore ignores; the log names them",
    ["resource"],
    registry=REGISTRY,
)
EVENTS_LOST = Counter("ddpjob_events_lost", "Kubernetes events that could not be written", registry=REGISTRY)
ProcessCollector(registry=REGISTRY)

DEFAULTS_VALID.set(1)
BUILD.labels(version("ddpjob"), VERSION).set(1)
# Each series must begin with 0, because Prometheus sees no increase in a series whose first value is 1.
for _result in ("ok", "error", "fenced", "bug"):
    ROUNDS.labels(_result)
for _result in ("ok", "refused", "silent", "unreadable", "bug"):
    STATUS_READS.labels(_result)
