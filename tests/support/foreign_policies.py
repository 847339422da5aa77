"""Policies as the usual sets of Kyverno and Gatekeeper have them, for the API server itself to apply.

Each is a ValidatingAdmissionPolicy of the same meaning. It holds in namespaces that have its label.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.plant import Plant, PlantError
from tests.support.waiting import wait_for

GROUP = "/apis/admissionregistration.k8s.io/v1"
CONTAINERS = "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
REGISTRY = "registry.example.com/"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: what it demands of which objects."""

    message: str
    """What a refused user reads."""
    demands: str
    """A CEL expression. For pods, `variables.containers` are all of their containers."""
    group: str = ""
    resource: str = "pods"


POLICIES = {
    "require-requests-limits": Policy(
        "CPU and memory requests and memory limits are required",
        """variables.containers.all(c, has(c.resources) && has(c.resources.requests) && has(c.resources.limits)
           && 'cpu' in c.resources.requests && 'memory' in c.resources.requests && 'memory' in c.resources.limits)""",
    ),
    "memory-requests-equal-limits": Policy(
        "memory requests must equal memory limits",
        """variables.containers.all(c, has(c.resources) && has(c.resources.requests) && has(c.resources.limits)
           && 'memory' in c.resources.limits
           && c.resources.requests[?'memory'] == optional.of(c.resources.limits['memory']))""",
    ),
    "require-ephemeral-storage-limits": Policy(
        "containers with an emptyDir need requests and limits of ephemeral-storage",
        """!has(object.spec.volumes) || variables.containers.all(c, !has(c.volumeMounts)
           || !c.volumeMounts.exists(m, object.spec.volumes.exists(v, v.name == m.name && has(v.emptyDir)
              && !has(v.emptyDir.sizeLimit)))
           || (has(c.resources) && has(c.resources.requests) && 'ephemeral-storage' in c.resources.requests
               && has(c.resources.limits) && 'ephemeral-storage' in c.resources.limits))""",
    ),
    "disallow-latest-tag": Policy(
        "an image needs a tag other than latest, or a digest",
        """variables.containers.all(c, c.image.matches('(:[^:/@]+|@sha256:[0-9a-f]+)$')
           && !c.image.endsWith(':latest'))""",
    ),
    "restrict-image-registries": Policy(
        f"images come from {REGISTRY}", f"variables.containers.all(c, c.image.startsWith('{REGISTRY}'))"
    ),
    "require-labels": Policy(
        "the label app.kubernetes.io/name is required",
        "has(object.metadata.labels) && 'app.kubernetes.io/name' in object.metadata.labels",
    ),
    "require-ro-rootfs": Policy(
        "the root file system must be read-only",
        """variables.containers.all(c, has(c.securityContext) && has(c.securityContext.readOnlyRootFilesystem)
           && c.securityContext.readOnlyRootFilesystem)""",
    ),
    "allowed-users": Policy(
        "containers run as users from 10000 on",
        """variables.containers.all(c, has(c.securityContext) && has(c.securityContext.runAsUser)
           ? c.securityContext.runAsUser >= 10000
           : has(object.spec.securityContext) && has(object.spec.securityContext.runAsUser)
             && object.spec.securityContext.runAsUser >= 10000)""",
    ),
    "require-pod-probes": Policy(
        "a readiness, liveness or startup probe is required",
        "object.spec.containers.all(c, has(c.readinessProbe) || has(c.livenessProbe) || has(c.startupProbe))",
    ),
    "require-run-as-nonroot": Policy(
        "containers must not run as root",
        """variables.containers.all(c, has(c.securityContext) && has(c.securityContext.runAsNonRoot)
           ? c.securityContext.runAsNonRoot
           : has(object.spec.securityContext) && has(object.spec.securityContext.runAsNonRoot)
             && object.spec.securityContext.runAsNonRoot)""",
    ),
    "require-drop-all": Policy(
        "containers must drop all capabilities",
        """variables.containers.all(c, has(c.securityContext) && has(c.securityContext.capabilities)
           && has(c.securityContext.capabilities.drop) && 'ALL' in c.securityContext.capabilities.drop)""",
    ),
    "disallow-host-path": Policy(
        "hostPath volumes are forbidden",
        "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
    ),
    "restrict-automount-sa-token": Policy(
        "the token of the service account must not be mounted",
        "has(object.spec.automountServiceAccountToken) && !object.spec.automountServiceAccountToken",
    ),
    "prevent-bare-pods": Policy(
        "pods need a controller",
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.controller)",
    ),
    "secrets-not-from-env-vars": Policy(
        "Secrets must be mounted as files",
        """variables.containers.all(c, (!has(c.envFrom) || c.envFrom.all(e, !has(e.secretRef)))
           && (!has(c.env) || c.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))))""",
    ),
    "restrict-services": Policy(
        "Services must be of type ClusterIP and have no external addresses",
        "object.spec.type == 'ClusterIP' && !has(object.spec.externalIPs)",
        resource="services",
    ),
    "pdb-maxunavailable": Policy(
        "maxUnavailable must be greater than zero",
        "!has(object.spec.maxUnavailable) || string(object.spec.maxUnavailable) != '0'",
        group="policy",
        resource="poddisruptionbudgets",
    ),
}
"""By names that follow those of Kyverno's and Gatekeeper's sets."""

UNIVERSAL = "in-force"
"""The last policy to be created. It refuses all pods in namespaces with its label, to show that all are in force."""


def label(policy: str) -> str:
    """The label of namespaces in which a policy holds."""
    return f"policies.example.com/{policy}"


def hold(plant: Plant) -> None:
    """Creates all policies, and waits until they are in force."""
    for name, policy in {**POLICIES, UNIVERSAL: Policy("all are in force", "false")}.items():
        _create(plant, name, policy)
    namespace = plant.new_namespace(**{label(UNIVERSAL): ""})
    wait_for("the policies", lambda: "all are in force" in _answer(plant, namespace))


def forget(plant: Plant) -> None:
    """Deletes all policies."""
    kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    plant.kubectl("delete", kinds, *POLICIES, UNIVERSAL)


def _create(plant: Plant, name: str, policy: Policy) -> None:
    rule = {"apiGroups": [policy.group], "apiVersions": ["v1"], "resources": [policy.resource]}
    spec = {
        "matchConstraints": {"resourceRules": [rule | {"operations": ["CREATE"]}]},
        "variables": [{"name": "containers", "expression": CONTAINERS}] if policy.resource == "pods" else [],
        "validations": [{"expression": policy.demands, "message": policy.message}],
    }
    selector = {"matchExpressions": [{"key": label(name), "operator": "Exists"}]}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}}
    for kind, content in (("policies", spec), ("policybindings", bound)):
        plant.api.create(f"{GROUP}/validatingadmission{kind}", {"metadata": {"name": name}, "spec": content})


def _answer(plant: Plant, namespace: str) -> str:
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}}
    pod["spec"] = {"containers": [{"name": "probe", "image": "any"}]}
    try:
        return plant.kubectl("create", "--dry-run=server", "-f-", "--namespace", namespace, input=json.dumps(pod))
    except PlantError as error:
        return str(error)
