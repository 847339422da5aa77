"""Opens an object store, and turns its errors into messages that contain no secrets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.manifests.unusable import UnavailableError
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Store

CONNECT_SECONDS = 5
REQUEST_SECONDS = 90
"""The longest that one request may take, including the upload of a part."""
RETRY_SECONDS = 15
"""How long to retry a request that does not reach the server, or that fails in the server."""

ERRORS = (BaseError, OSError, ValueError)
"""The classes of errors that obstore raises."""
STATUS = re.compile(r"status code: (\d{3})")
CODE = re.compile(r"<Code>(\w{1,64})</Code>")
HTTP_ERROR = re.compile(r"HttpError \{\s{1,64}kind: (\w{1,32})")
BROKEN_CONNECTIONS = {
    "Connect": "there is no connection to the server",
    "Timeout": "the server has not answered in time",
    **dict.fromkeys(("Request", "Interrupted", "Decode"), "the connection to the server broke"),
}
MEANINGS = {
    "401": "the credentials are not valid",
    "403": "the credentials do not permit it",
    "404": "the bucket does not exist",
}
PASSING = {"408", "409", "425", "429"}
"""HTTP statuses that blame the request, although the same request may succeed the next time."""
BUCKET_MISSING = {"NoSuchBucket", "ContainerNotFound"}
METADATA_SERVICE = "169.254.169.254"
NO_CREDENTIALS = (
    "no credentials were found in the environment, and the machine's metadata service gave none. Set"
    " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the variables that your provider uses"
)


class StoreError(UnavailableError):
    """A request to the store has failed. The message contains no secrets: only the codes of the server's answer."""

    def __init__(self, what: str, error: Exception) -> None:
        text = str(error)[:8192]
        status, code = STATUS.search(text), CODE.search(text)
        self.lasting = (
            status is not None and (status[1][0] in "34" or status[1] == "501") and status[1] not in PASSING
        )
        broken = HTTP_ERROR.search(text)
        self.lost = broken is not None and broken[1] != "Connect"
        """Whether the server may have carried out the request."""
        super().__init__(f"{what}: {_reason(error, text, status and status[1], code and code[1])}")


def _reason(error: Exception, text: str, status: str | None, code: str | None) -> str:
    if METADATA_SERVICE in text.split("\n", 1)[0]:
        return NO_CREDENTIALS
    if status:
        answer = f"{status} {code}" if code else status
        return f"{MEANINGS[status]} ({answer})" if status in MEANINGS else f"the server answers {answer}"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return MEANINGS["403"]
    if (broken := HTTP_ERROR.search(text)) and broken[1] in BROKEN_CONNECTIONS:
        return BROKEN_CONNECTIONS[broken[1]]
    return f"obstore raises {type(error).__name__}"


@contextmanager
def asking(what: str, *expected: type[Exception]) -> Iterator[None]:
    """Turns any error of a request into a StoreError, except errors of the `expected` classes."""
    try:
        yield
    except StoreError:
        raise
    except ERRORS as error:
        code = CODE.search(str(error)[:8192])
        if isinstance(error, expected) and not (code and code[1] in BUCKET_MISSING):
            raise
        raise StoreError(what, error) from None


def opened(url: str) -> "Store":
    """Opens the place that a URL names, with credentials from the environment. Sends no request yet.

    Raises:
        ConfigError: The store cannot be used, for example because a setting is missing.
    """
    try:
        return from_url(
            url,
            client_options={
                "allow_http": True,  # Matters only if the user's own AWS_ENDPOINT_URL begins with http:.
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
            },
            retry_config={"retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )
    except ERRORS as error:
        # The first line names what is missing. The others may contain the settings.
        raise ConfigError(f"{url} cannot be used: {str(error).splitlines()[0]}") from None
