"""Masks the values of secret variables: more people may read a job's history than its log."""

import re
from collections.abc import Mapping
from typing import Any

NAMES = (
    r"token(?!i[sz])|secret|passw|passphrase|credential|private|auth(?!or(?!i))"
    r"|(?:api|access|account|client|encryption|signing|license|ssh|session)[-_]?key|connection[-_]?string"
)
"""As in the operator's `secrecy`: parts of the names of variables whose values are secret, regardless of case."""
SHORTEST = 6
"""Minimum length of a value that is masked. Shorter ones may be common words."""
PLAIN = re.compile(r"[\d.]*|true|false|none|null", re.IGNORECASE)
MASK = "•••"
IN_AN_ADDRESS = (
    r"(?<=://)[^\s/@'\"<>]{1,512}(?=@)"
    rf"|(?<=[?&])([\w.-]{{0,64}}?(?:(?:{NAMES})[\w.-]{{0,64}}|sig(?:nature)?)=)[^\s&#'\"<>]{{1,1024}}"
)
"""Matches a user and a password in a URL, and the value of a secret parameter, after the parameter's name."""
ADDRESS_BYTES = 4096
"""No match is longer, in bytes."""


_ADDRESS = re.compile(IN_AN_ADDRESS, re.IGNORECASE)
_ADDRESS_IN_BYTES = re.compile(IN_AN_ADDRESS.encode(), re.IGNORECASE)
_PASSWORD = re.compile(r"://[^\s/@:]{0,512}:([^\s/@]{1,512})@")


class SecretValues:
    """The values of an environment's secret variables, passwords in its addresses, and those in any other address."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._hidden: frozenset[str] = frozenset()
        self.learn(env)

    def learn(self, env: Mapping[str, str]) -> None:
        """Masks the secrets of these variables, too. Another thread may mask a text meanwhile."""
        secret = re.compile(NAMES, re.IGNORECASE)
        values = {
            line.strip() for name, value in env.items() if secret.search(name) for line in value.splitlines() if line
        }
        values |= {password for value in env.values() for password in _PASSWORD.findall(value)}
        new = {value for value in values if len(value) >= SHORTEST and not PLAIN.fullmatch(value)}
        hidden = self._hidden = self._hidden | new
        # The longest first: a value may begin like another one.
        longest_first = sorted(hidden, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if hidden else None
        encoded = [value.encode(errors="surrogateescape") for value in longest_first]
        self._in_bytes = re.compile(b"|".join(map(re.escape, encoded))) if hidden else None
        self.longest = max([ADDRESS_BYTES, *map(len, encoded)])
        """The length of the longest secret in bytes."""

    def masked_bytes(self, text: bytes) -> bytes:
        """A text with the secrets masked. A piece of a value at its end is not recognized yet."""
        if self._in_bytes is not None:
            text = self._in_bytes.sub(MASK.encode(), text)
        if b"://" in text or b"?" in text or b"&" in text:  # Quicker than the pattern.
            text = _ADDRESS_IN_BYTES.sub(rb"\1" + MASK.encode(), text)
        return text

    def masked(self, value: Any) -> Any:
        """A value of JSON, with the secrets in its texts masked."""
        if isinstance(value, str):
            return _ADDRESS.sub(rf"\1{MASK}", value if self._pattern is None else self._pattern.sub(MASK, value))
        if isinstance(value, Mapping):
            return {name: self.masked(inner) for name, inner in value.items()}
        return [self.masked(inner) for inner in value] if isinstance(value, list | tuple) else value
