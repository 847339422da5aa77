"""Generates sections with the operator's rights and metrics, from the code that defines them."""

from ddpjob_operator.cluster.kube.rights import (
    DEFAULTS_RIGHTS,
    EVENT_RIGHTS,
    FEATURE_RIGHTS,
    KUEUE_CLUSTER_RIGHTS,
    LABELS_RIGHTS,
    LEASE_RIGHTS,
    MARK_RIGHTS,
    METRICS_RIGHTS,
    NAMESPACE_RIGHTS,
    NODE_RIGHTS,
    OWNER_RIGHTS,
    RIGHTS,
)
from ddpjob_operator.cluster.serve.job_metrics import COUNTERS, GAUGES, OF_CAUSES, JobMetrics
from ddpjob_operator.cluster.serve.metrics import REGISTRY
from ddpjob_operator.engine import EFFECTS, StartPart, TimeKind
from prometheus_client.metrics_core import Metric

from .markdown import code, table
from .source import meanings


def metrics() -> str:
    """Every metric of the operator about itself, with its type and meaning."""
    return table(
        ("Metric", "Type", "Meaning"),
        (
            (_name(metric), metric.type, f"{metric.documentation}.")
            for metric in REGISTRY.collect()
            if metric.name.startswith("ddpjob_")
        ),
    )


def job_metrics() -> str:
    """Every metric about jobs, with its type, labels and meaning."""
    families = (*GAUGES, *COUNTERS, *OF_CAUSES)
    return table(
        ("Metric", "Type", "Labels", "Meaning"),
        (
            (
                _name(metric),
                metric.type,
                ", ".join(map(code, metric._labelnames)),  # type: ignore[attr-defined]  # noqa: SLF001
                f"{metric.documentation}.",
            )
            for metric in JobMetrics({family: {} for family in families}, {}, {}).collect()
        ),
    )


def time_kinds() -> str:
    """Every kind of a job's time."""
    return table(("`kind`", "Meaning"), ((code(kind), text) for _, kind, text in meanings(TimeKind)))


def start_parts() -> str:
    """Every part of a job's start."""
    return table(("`part`", "Meaning"), ((code(part), text) for _, part, text in meanings(StartPart)))


def _name(metric: Metric) -> str:
    return code(f"{metric.name}_total" if metric.type == "counter" else metric.name)


def rights() -> str:
    """Every RBAC right of the operator, and where it applies."""
    return table(
        ("API group", "Resource", "Verbs", "Where"),
        (
            (code(group) if group else "core", code(resource), ", ".join(verbs), where)
            for where, granted in (
                ("in the namespaces that it serves", RIGHTS),
                (
                    "there too; without it finished jobs do not get the annotation, and everything else works",
                    MARK_RIGHTS,
                ),
                ("there too; some clusters require it of whoever creates an object that a job owns", OWNER_RIGHTS),
                *(
                    (f"there too; without it {EFFECTS[feature].missing}", granted)
                    for feature, granted in FEATURE_RIGHTS.items()
                ),
                ("there too; without it gangs give way even while an autoscaler adds nodes", EVENT_RIGHTS),
                ("there too; without it no job begins if defaults have a `namespaceSelector`", LABELS_RIGHTS),
                ("in its own namespace; those to ConfigMaps only to its own one with defaults", DEFAULTS_RIGHTS),
                ("in its own namespace; all but `create` only on its own Lease", LEASE_RIGHTS),
                ("in the whole cluster, with `namespaceSelector`", NAMESPACE_RIGHTS),
                ("in the whole cluster, with `metrics.auth`", METRICS_RIGHTS),
                ("in the whole cluster, with `rbac.nodes`", NODE_RIGHTS),
                (
                    "in the whole cluster, with `rbac.kueue`, for jobs that name a Kueue queue",
                    KUEUE_CLUSTER_RIGHTS,
                ),
            )
            for (group, resource), verbs in granted.items()
        ),
    )
