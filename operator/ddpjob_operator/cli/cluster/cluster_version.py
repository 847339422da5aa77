"""`ddpjob version`: which DDPJob a cluster has, and whether it has the client's version."""

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
"""What the chart labels with its version, and where it is."""


def version(cluster: Cluster) -> int:
    """Prints the versions of the operator and the CRD as far as the user may read them, and warns of a difference.

    Raises:
        UnreachableError: the cluster does not answer.
    """
    known = {"Client": {version_of("ddpjob")}}
    for what, (path, query) in READ.items():
        try:
            found = [one.get("labels", {}).get(LABEL, "unknown") for one in cluster.metadata(path, query)]
        except RefusedError as error:
            print(f"{what} Version: unknown ({error.said or error})")
            continue
        print(f"{what} Version: {', '.join(sorted(set(found))) or 'not installed'}")
        known[what] = {*found} - {"unknown"}
    if len(set().union(*known.values())) > 1:
        each = "; ".join(f"{what} {', '.join(sorted(those))}" for what, those in known.items() if those)
        print(f"WARNING: version difference: {each}", file=sys.stderr)
    return 0
