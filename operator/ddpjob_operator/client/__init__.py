"""A Python client for DDPJobs on a cluster, with the rights of the kubeconfig's user.

Of our packages it imports only `api`.
"""

from .cluster import Cluster, Document
from .errors import ClosedError, ClusterError, ExistsError, NoNamespaceError, RefusedError, UnreachableError
from .jobs import Jobs, as_job, when
from .kubeconfig import connect
from .pod_exec import Conversation, TerminalSession
from .pods import JobPod, of_attempt, present, previous_attempt
from .reader_pod import Claimed, reading

__all__ = [
    "Claimed",
    "ClosedError",
    "Cluster",
    "ClusterError",
    "Conversation",
    "Document",
    "ExistsError",
    "JobPod",
    "Jobs",
    "NoNamespaceError",
    "RefusedError",
    "TerminalSession",
    "UnreachableError",
    "as_job",
    "connect",
    "of_attempt",
    "present",
    "previous_attempt",
    "reading",
    "when",
]
