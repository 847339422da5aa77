"""Detects the GitOps tool that manages an object. Such a tool undoes changes that are made only on the cluster."""

from collections.abc import Mapping

MARKS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""The labels and annotations by which the tools recognise their objects:
https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/ and
https://fluxcd.io/flux/components/kustomize/kustomizations/. The label `app.kubernetes.io/instance`, which Argo CD can
use as well, proves nothing, because all charts set it."""


def keeper(*marks: Mapping[str, object]) -> str:
    """Returns the tool that manages an object with these labels and annotations; empty if no such tool is known."""
    return next((tool for key, tool in MARKS.items() for known in marks if key in known), "")
