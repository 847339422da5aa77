"""What can go wrong between a user and a cluster, in words for that user."""

from http import HTTPStatus
from typing import Any

from ddpjob_operator.api import BadInputError


class ClusterError(Exception):
    """The cluster cannot be reached, or does not do what was asked. Its text is complete, as a person reads it."""


class UnreachableError(ClusterError):
    """No answer came, or one that says to try again later."""


class RefusedError(ClusterError):
    """The API server's answer is no."""

    def __init__(self, message: str, code: int, answer: dict[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        """The HTTP status."""
        self.reason = str(answer.get("reason", ""))
        """Kubernetes' word for why, such as `AlreadyExists`; empty if the server gave none."""
        self.said = str(answer.get("message", ""))
        """The API server's own sentence."""
        self.details: dict[str, Any] = answer.get("details") or {}
        """Kind and name of what it is about."""

    @property
    def missing(self) -> bool:
        """Whether what it is about does not exist."""
        return self.code == HTTPStatus.NOT_FOUND

    @property
    def forbidden(self) -> bool:
        """Whether the user may not do it."""
        return self.code == HTTPStatus.FORBIDDEN


class ExistsError(BadInputError):
    """There is already one of that name."""


def refusal(code: int, answer: dict[str, Any], where: str) -> ClusterError:
    """The error for an HTTP status and the Status object that came with it."""
    said = answer.get("message") or HTTPStatus(code).phrase
    if code == HTTPStatus.UNAUTHORIZED:
        message = f"{where} does not know you ({said}): the credentials of its kubeconfig are wrong or have expired"
    elif code == HTTPStatus.FORBIDDEN and " cannot " in said:
        message = f"{where} does not allow it: {said}. Ask for the ClusterRole ddpjob-edit, or ddpjob-view to look"
    elif code == HTTPStatus.TOO_MANY_REQUESTS or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return UnreachableError(f"{where} cannot answer now: {said}")
    else:
        message = f"{where} refuses: {said}"
    return RefusedError(message, code, answer)
