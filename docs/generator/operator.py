"""Generates sections with the operator's rights and metrics, from the code that defines them."""

from ddpjob_operator.cluster.kube.rights import (
    EVENT_RIGHTS,
    FEATURE_RIGHTS,
    KUEUE_CLUSTER_RIGHTS,
    LEASE_RIGHTS,
    MARK_RIGHTS,
    METRICS_RIGHTS,
    NAMESPACE_RIGHTS,
    NODE_RIGHTS,
    OWNER_RIGHTS,
    RIGHTS,
)
from ddpjob_operator.cluster.serve.metrics import REGISTRY
from ddpjob_operator.engine import EFFECTS

from .markdown import code, table


def metrics() -> str:
    """Every metric with its type and meaning."""
    families = REGISTRY.collect()
    return table(
        ("Metric", "Type", "Meaning"),
        (
            (code(f"{one.name}_total" if one.type == "counter" else one.name), one.type, f"{one.documentation}.")
            for one in families
        ),
    )


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
