"""The operator's command line."""

import argparse
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ddpjob_operator.api import NetworkPolicy, PodSecurity
from ddpjob_operator.api.contract import CLASS_LABEL
from ddpjob_operator.api.inheritance import KEY, LABEL_VALUE, MOST_INHERITED, is_reserved
from ddpjob_operator.engine import Holder, Settings

from .serve.log import Format

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

LAST_PORT = 65535

RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
"""The name of an extended resource, or a prefix of such names. A prefix ends in a dash."""

A_WEEK = 604_800
"""A week in seconds."""


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The operator's options, from its command line."""

    namespaces: list[str]
    """The namespaces whose jobs the operator runs. If empty: those that the selector selects or, without a selector,
    all."""
    namespace_selector: str
    """A label selector for the namespaces whose jobs the operator runs; empty: no selector. Label changes take effect
    immediately."""
    lease: tuple[str, str] | None
    """Namespace and name of the Lease for leader election; None: this replica leads without an election."""
    identity: str
    """The name of this process in the Lease. No other process has, or ever had, the same name."""
    port: int
    probe_port: int
    metrics_auth: bool
    """Whether the metrics are served only to users whom the API server permits to read them."""
    log_format: Format
    log_level: str
    resync_seconds: int
    """Seconds between two lists of everything. A change that a watch missed is noticed within this time."""
    clock_settling_seconds: int
    """For this many seconds after the operator has started, or the API server's clock has jumped, deadlines and
    timeouts cause nothing that cannot be undone."""
    defaults: tuple[str, str] | None
    """Namespace and name of the ConfigMap with the organisation's defaults; None: there are none."""
    settings: Settings


def parse(arguments: list[str] | None = None) -> OperatorOptions:
    """Parses the command line."""
    own = _own_namespace()
    parser = _parser(own)
    given = parser.parse_args(arguments)
    for flag, many in (("--label", given.labels), ("--inherit-key", given.inherited_keys)):
        if len(many) > MOST_INHERITED:
            parser.error(f"argument {flag}: given {len(many)} times; at most {MOST_INHERITED} are allowed")
    return OperatorOptions(
        namespaces=sorted(set(given.namespaces)),
        namespace_selector=given.namespace_selector,
        lease=(given.lease_namespace, given.lease_name) if given.leader_elect else None,
        identity=f"{socket.gethostname()}_{uuid4()}",
        port=given.port,
        probe_port=given.probe_port,
        metrics_auth=given.metrics_auth,
        log_format=given.log_format,
        log_level=given.log_level,
        resync_seconds=given.resync_seconds,
        clock_settling_seconds=given.clock_settling_seconds,
        defaults=(own or given.lease_namespace, given.defaults) if given.defaults else None,
        settings=Settings(
            pod_security=PodSecurity(given.pod_security.capitalize()),
            network_policy=NetworkPolicy(given.network_policy.capitalize()),
            gpu_resources=tuple(given.gpu_resources),
            monitoring_namespace=given.monitoring_namespace,
            operator_namespace=own,
            holder=Holder(f"{given.lease_namespace}/{given.lease_name}", given.class_name),
            trainer_image=given.trainer_image,
            labels=tuple(sorted(dict(given.labels).items())),
            inherited_keys=tuple(dict.fromkeys(given.inherited_keys)),
            force_delete_lost_pods=given.force_delete_lost_pods,
            drain_protection_seconds=given.drain_protection_seconds,
            avoid_broken_nodes_seconds=given.avoid_broken_nodes_seconds,
        ),
    )


def _parser(own_namespace: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddpjob-operator",
        description="Watches DDPJobs and runs them: creates their pods, restarts them as a whole, and reports why.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        dest="namespaces",
        help="watch only this namespace; can be repeated; without it, watch all namespaces",
    )
    which.add_argument(
        "--namespace-selector",
        default="",
        metavar="SELECTOR",
        help="watch only the namespaces whose labels match this selector, such as team=blue",
    )
    parser.add_argument(
        "--class",
        default="",
        type=_class,
        metavar="CLASS",
        dest="class_name",
        help=f"run only jobs whose label {CLASS_LABEL} has this value; without it, run the jobs without such a label",
    )
    parser.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let one of several replicas lead; the others stand by",
    )
    parser.add_argument(
        "--lease-namespace", default=own_namespace or "default", metavar="NAMESPACE", help="namespace of the Lease"
    )
    parser.add_argument(
        "--lease-name",
        default="ddpjob-operator",
        metavar="NAME",
        help="name of the Lease; with its namespace it is also the operator's name in the jobs that it runs",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=8080,
        help="port that serves /healthz, /readyz and /metrics; 0 picks a free port",
    )
    parser.add_argument(
        "--probe-port",
        type=_port,
        default=8081,
        help="port that serves only /healthz and /readyz, for the kubelet; 0 picks a free port",
    )
    parser.add_argument(
        "--metrics-auth",
        action="store_true",
        help="serve /metrics only to users with a valid token who may get /metrics",
    )
    parser.add_argument(
        "--log-format",
        choices=["json", "text"],
        default="json",
        help="format of log lines: json is for programs, text for people",
    )
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="the lowest level that is logged",
    )
    parser.add_argument(
        "--resync-seconds",
        type=_seconds,
        default=300,
        metavar="SECONDS",
        help="how often everything is read again, in case a watch has missed something",
    )
    parser.add_argument(
        "--clock-settling-seconds",
        type=_seconds,
        default=60,
        metavar="SECONDS",
        help="for how long deadlines and timeouts have no effect after the operator has started, or the API server's "
        "clock has jumped",
    )
    parser.add_argument(
        "--defaults",
        default="",
        metavar="NAME",
        help="name of the ConfigMap in the operator's own namespace with the organisation's defaults for jobs, which "
        "the operator follows; without it there are none",
    )
    parser.add_argument(
        "--pod-security",
        choices=[security.lower() for security in PodSecurity],
        default=PodSecurity.RESTRICTED.lower(),
        help="security settings of pods whose template has none: the restricted Pod Security Standard, or nothing",
    )
    parser.add_argument(
        "--network-policy",
        choices=[choice.lower() for choice in NetworkPolicy],
        default=NetworkPolicy.ENABLED.lower(),
        help="whether jobs that do not set network.policy get a NetworkPolicy when they first start",
    )
    parser.add_argument(
        "--gpu-resource",
        action="append",
        default=[],
        type=_resource,
        metavar="RESOURCE",
        dest="gpu_resources",
        help="also count this resource of a trainer as GPUs, such as nvidia.com/gpu.shared; a name that ends in a "
        "dash stands for all resources that begin with it; can be repeated",
    )
    parser.add_argument(
        "--monitoring-namespace",
        default="",
        metavar="NAMESPACE",
        help="let the pods of this namespace read the status ports of jobs that have a NetworkPolicy",
    )
    parser.add_argument(
        "--trainer-image",
        default="",
        metavar="IMAGE",
        help="image for containers that name none, in jobs that start for the first time",
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        metavar="KEY=VALUE",
        dest="labels",
        help="give all objects of jobs this label, which a policy of the cluster may demand; can be repeated",
    )
    parser.add_argument(
        "--inherit-key",
        action="append",
        default=[],
        type=_inheritable,
        metavar="KEY",
        dest="inherited_keys",
        help="copy the label and the annotation with this key from a job to all its objects, and the annotation from "
        "its template too; can be repeated",
    )
    parser.add_argument(
        "--force-delete-lost-pods",
        action="store_true",
        help="delete pods from the API if their Kubernetes node does not answer; their processes may still run there",
    )
    parser.add_argument(
        "--drain-protection-seconds",
        type=_at_most_a_week,
        default=Settings().drain_protection_seconds,
        metavar="SECONDS",
        help="for how long after its last checkpoint a job may delay drains, if it asks for that; 0 allows no delay",
    )
    parser.add_argument(
        "--avoid-broken-nodes-seconds",
        type=_at_most_a_week,
        default=Settings().avoid_broken_nodes_seconds,
        metavar="SECONDS",
        help="for how long pods wait for another Kubernetes node before they may be placed on a broken one; with "
        "0 they only prefer others",
    )
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it must be a number from 0 to {LAST_PORT}")
    return port


def _resource(text: str) -> str:
    if not RESOURCE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a resource, such as nvidia.com/gpu.shared")
    return text


def _label(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (sign and KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a label, such as team=vision")
    return _inheritable(key), value


def _class(text: str) -> str:
    if not LABEL_VALUE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a class: it must be the value of a label, such as canary")
    return text


def _inheritable(key: str) -> str:
    if not KEY.fullmatch(key):
        raise argparse.ArgumentTypeError(f"{key!r} is not the key of a label or annotation, such as example.com/team")
    if is_reserved(key):
        raise argparse.ArgumentTypeError(f"{key!r} is reserved: tools recognise a single object by it, not several")
    return key


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of seconds, at least 1")
    return int(text)


def _at_most_a_week(text: str) -> int:
    seconds = int(text) if text.isdecimal() else -1
    if not 0 <= seconds <= A_WEEK:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of seconds from 0 to {A_WEEK}")
    return seconds


def _own_namespace() -> str:
    """Returns the namespace of the operator's own pod; empty if the operator does not run in a pod."""
    if "POD_NAMESPACE" in os.environ:
        return os.environ["POD_NAMESPACE"]
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else ""
