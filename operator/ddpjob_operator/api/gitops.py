"""Which tool keeps an object as it is in its repository: such a tool undoes what is changed on the cluster alone."""

from collections.abc import Mapping

MARKS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""Labels and annotations by which tools find their objects:
https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/ and
https://fluxcd.io/flux/components/kustomize/kustomizations/. The label `app.kubernetes.io/instance`, which Argo CD can
use as well, proves nothing, because all charts set it."""


def keeper(*marks: Mapping[str, object]) -> str:
    """The tool that keeps an object with these labels and annotations; empty if no such tool is known."""
    return next((tool for key, tool in MARKS.items() for known in marks if key in known), "")
