"""Errors in requests to a cluster, with messages for the user."""

from http import HTTPStatus
from http.client import responses
from typing import Any

from ddpjob_operator.api import BadInputError

DEBUG = "ddpjob-debug, if the chart ddpjob-cluster has installed it (debugRole=true), or edit"
"""The roles with the rights to run programs in pods and to forward their ports."""


class ClusterError(Exception):
    """The cluster cannot be reached, or does not fulfil a request. The text is a complete message for the user."""


class UnreachableError(ClusterError):
    """The cluster did not answer, or it asked the client to try again later."""


class ClosedError(ClusterError):
    """Another thread has closed the connections that the request used."""


class RefusedError(ClusterError):
    """The API server refused the request."""

    def __init__(self, message: str, code: int, answer: dict[str, Any]) -> None:
        super().__init__(message, code, answer)  # All arguments, so that it can be sent to another process.
        self.code = code
        """The HTTP status."""
        self.reason = str(answer.get("reason", ""))
        """Kubernetes' reason in one word, such as `AlreadyExists`; empty if the server gave none."""
        self.said = str(answer.get("message", ""))
        """The API server's own message."""
        self.details: dict[str, Any] = answer.get("details") or {}
        """The kind and the name of the object that was requested, as far as the server gave them."""

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def missing(self) -> bool:
        """Whether the object does not exist."""
        return self.code == HTTPStatus.NOT_FOUND

    @property
    def forbidden(self) -> bool:
        """Whether the user lacks the right to make the request."""
        return self.code == HTTPStatus.FORBIDDEN


class NoNamespaceError(BadInputError):
    """There is no such namespace."""

    def __init__(self, namespace: str, where: str) -> None:
        super().__init__(namespace, where)

    def __str__(self) -> str:
        namespace, where = self.args
        return f"no namespace {namespace} in {where}; create it with: kubectl create namespace {namespace}"


class ExistsError(BadInputError):
    """There is already an object of that name."""


def refusal(code: int, answer: dict[str, Any], where: str) -> ClusterError:
    """Builds the error for an HTTP status `code` and the Status object in `answer`. `where` names the cluster."""
    reason = answer.get("message") or responses.get(code, f"status {code}")  # Some proxies have codes of their own.
    if code == HTTPStatus.UNAUTHORIZED:
        message = f"{where} rejects your credentials ({reason}): those in the kubeconfig are wrong or have expired"
    elif code == HTTPStatus.FORBIDDEN and " cannot " in reason:
        # DDPJob's usual roles include neither of these rights, because they apply to all pods of a namespace.
        for_debugging = "pods/portforward" in reason or "pods/exec" in reason
        role = DEBUG if for_debugging else "ddpjob-edit, or ddpjob-view to look"
        message = f"{where} does not allow this: {reason}. Ask for the ClusterRole {role}"
    elif code == HTTPStatus.TOO_MANY_REQUESTS or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return UnreachableError(f"{where} cannot answer now: {reason}")
    else:
        message = f"{where} refuses: {reason}"
    return RefusedError(message, code, answer)
