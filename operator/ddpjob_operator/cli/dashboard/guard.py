"""Who may ask the server of `ddpjob dashboard`: only its own page, in the browser of who has the token.

Every other page that this browser shows, and every other user of this machine, can reach the server too.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
DATA = "/api/"
"""Where the paths begin that tell or do something. What else is served is the same for everybody."""
PAGE = "/"
HTTP_PORT = 80


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses requests by their headers.

    Example:
        >>> guard = Guard(8000, "secret")
        >>> guard.refusal("/api/watch", {"Host": "127.0.0.1:8000", "Authorization": "Bearer secret"})
        ''
        >>> guard.refusal("/", {"Host": "evil.example:8000"})
        'this server is 127.0.0.1:8000 and has no other name'
    """

    port: int
    token: str

    @property
    def address(self) -> str:
        """Where the page is, with the token. A browser sends nobody what is behind `#`."""
        return f"http://{LOOPBACK}:{self.port}/#token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the server in the header Host."""
        names = (LOOPBACK, "localhost")
        return tuple(f"{name}:{self.port}" for name in names) + (names if self.port == HTTP_PORT else ())

    def refusal(self, path: str, headers: Mapping[str, str]) -> str:
        """Why a request is refused; empty if it is not."""
        if headers.get("Host") not in self.hosts:
            # A name that its owner lets point to this machine would be the same origin as the owner's page.
            return f"this server is {self.hosts[0]} and has no other name"
        origin = headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return "the request comes from another page"
        # Sent by every present browser, also where it sends no Origin. A link may lead to the page, from anywhere.
        site = headers.get("Sec-Fetch-Site", "none")
        if site not in {"same-origin", "none"} and not (path == PAGE and headers.get("Sec-Fetch-Dest") == "document"):
            return "the request comes from another page"
        if path.startswith(DATA) and not self._has_token(headers.get("Authorization", "")):
            return "the token is missing or wrong; open the address that ddpjob dashboard has printed"
        return ""

    def _has_token(self, authorization: str) -> bool:
        return hmac.compare_digest(authorization.encode(errors="replace"), f"Bearer {self.token}".encode())
