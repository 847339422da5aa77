"""`ddpjob version`: the versions of a cluster's operator and CRD, and whether they agree with the client's."""

import sys
from importlib.metadata import version as version_of

from ddpjob_operator.client import Cluster, RefusedError

LABEL = "app.kubernetes.io/version"
READ = {
    "Operator": ("/apis/apps/v1/deployments", {"labelSelector": "app.kubernetes.io/name=ddpjob-operator"}),
    "CRD": (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"fieldSelector": "metadata.name=ddpjobs.ddpjob.dev"},
    ),
}
"""For each component: the path and the query for its objects, which the chart has labeled with the version."""


def version(cluster: Cluster) -> int:
    """Prints the versions of the operator and the CRD, if the user may read them, and warns if versions differ.

    Raises:
        UnreachableError: the cluster does not answer.
    """
    known = {"Client": {version_of("ddpjob")}}
    for component, (path, query) in READ.items():
        try:
            found = [labeled.get("labels", {}).get(LABEL, "unknown") for labeled in cluster.metadata(path, query)]
        except RefusedError as error:
            print(f"{component} Version: unknown ({error.said or error})")
            continue
        print(f"{component} Version: {', '.join(sorted(set(found))) or 'not installed'}")
        known[component] = {*found} - {"unknown"}
    if len(set().union(*known.values())) > 1:
        each = "; ".join(
            f"{component} {', '.join(sorted(versions))}" for component, versions in known.items() if versions
        )
        print(f"WARNING: version difference: {each}", file=sys.stderr)
    return 0
