"""Proof that messages come from a supervisor of the same job: lines with an HMAC, which needs the job's secret.

    caller      Hello or Announce, with a nonce         plain: only shows the caller's version, and is not trusted
    listener    Challenge, with a nonce of its own      plain
    caller      Hello or Announce again                 sealed: node, incarnation and attempt are in it
    listener    Welcome, Elsewhere, Refused, History    sealed
    both        everything from then on                 sealed

A seal is the HMAC-SHA256 of a line's number and the line. Its key is made from the secret, the sender's role, and
both nonces: so no line can be sent back to its sender, copied from another connection, repeated, or reordered.
"""

import hmac
import secrets
from typing import Final, Literal

from .messages import UnreadableError

Role = Literal["caller", "listener"]
CALLER: Final = "caller"
LISTENER: Final = "listener"

HASH = "sha256"
NONCE_BYTES = 16
SEAL_BYTES = 64
"""Its length as hexadecimal digits, in front of a line."""


class UnprovedError(UnreadableError):
    """The sender has not proved that it has the job's secret."""


class SecretDiffersError(UnprovedError):
    """The other side does not accept this side's proof."""


def nonce() -> str:
    """A number that is used once."""
    return secrets.token_hex(NONCE_BYTES)


class Seals:
    """The seals of one side of a connection, line by line."""

    def __init__(self, secret: bytes, role: Role, callers_nonce: str, listeners_nonce: str) -> None:
        words = f"{role}\n{callers_nonce}\n{listeners_nonce}"
        self._key = hmac.digest(secret, words.encode(), HASH)
        self._number = 0

    def sealed(self, line: bytes) -> bytes:
        """The next line, with its seal."""
        return self._next(line) + line

    def opened(self, line: bytes) -> bytes:
        """The next line, without its seal.

        Raises:
            UnprovedError: The seal is not the right one.
        """
        seal, line = line[:SEAL_BYTES], line[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._next(line)):
            raise UnprovedError("it does not prove that it belongs to this job")
        return line

    def _next(self, line: bytes) -> bytes:
        number, self._number = self._number, self._number + 1
        return hmac.digest(self._key, number.to_bytes(8, "big") + line, HASH).hex().encode()
