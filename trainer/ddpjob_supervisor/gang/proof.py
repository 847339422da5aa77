"""Proof that messages come from a supervisor of the same job: lines with an HMAC, which needs the job's secret.

    caller      Hello or Announce, with a nonce         plain: shows the caller's version, and is not trusted
    listener    Challenge, with a nonce of its own      plain
    caller      Hello or Announce again                 sealed, including the node, incarnation and attempt
    listener    Welcome, Elsewhere, Refused, History    sealed
    both        everything from then on                 sealed

A seal is the HMAC-SHA256 of a line's number and the line. Its key is derived from the secret, the sender's role, and
both nonces, so that an attacker cannot send a line back to its sender, copy one from another connection, or repeat or
reorder lines.
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
"""The length of a seal. Its hexadecimal digits stand in front of the sealed line."""


class UnprovedError(UnreadableError):
    """The sender has not proved that it has the job's secret."""


class SecretDiffersError(UnprovedError):
    """The other side does not accept this side's proof."""


def nonce() -> str:
    """A random hexadecimal number that is used only once."""
    return secrets.token_hex(NONCE_BYTES)


class Seals:
    """Seals the lines that one side of a connection sends, or checks the seals of these lines. Lines count from 0."""

    def __init__(self, secret: bytes, role: Role, callers_nonce: str, listeners_nonce: str) -> None:
        words = f"{role}\n{callers_nonce}\n{listeners_nonce}"
        self._key = hmac.digest(secret, words.encode(), HASH)
        self._number = 0

    def sealed(self, line: bytes) -> bytes:
        """Returns the next line with its seal."""
        return self._next(line) + line

    def opened(self, line: bytes) -> bytes:
        """Returns the next line without its seal.

        Raises:
            UnprovedError: The seal is wrong.
        """
        seal, line = line[:SEAL_BYTES], line[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._next(line)):
            raise UnprovedError("it does not prove that it belongs to this job")
        return line

    def _next(self, line: bytes) -> bytes:
        number, self._number = self._number, self._number + 1
        return hmac.digest(self._key, number.to_bytes(8, "big") + line, HASH).hex().encode()
