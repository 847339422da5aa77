"""A certificate authority for one plant.

Its keys are on an elliptic curve, because those are made in a millisecond.
"""

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = dt.timedelta(days=7)
BEFORE = dt.timedelta(hours=1)
"""Certificates are valid from this long before their creation, because clocks differ."""

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both as PEM."""

    certificate: str
    key: str


class Authority:
    """Signs certificates for servers and for users."""

    def __init__(self, name: str = "plant", valid: dt.timedelta = VALID, key: PrivateKey | None = None) -> None:
        self._key = key or new_key()
        self._called = name
        self._name = _name(name, ())
        self._valid = valid

    @cached_property
    def certificate(self) -> str:
        """The authority's own certificate."""
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        names = x509.SubjectAlternativeName([_alternative(self._called)])
        return self._signed(self._name, self._key.public_key(), constraints, names)

    @property
    def key(self) -> str:
        """The authority's key, for programs that want to sign certificates themselves."""
        return pem(self._key)

    def server(self, name: str, *, reached_as: Iterable[str], user: str = "", groups: Iterable[str] = ()) -> Pair:
        """A pair for a server with these host names and addresses.

        With `user`, the server can also send requests with it.
        """
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] + ([ExtendedKeyUsageOID.CLIENT_AUTH] if user else [])
        names = x509.SubjectAlternativeName([_alternative(one) for one in reached_as])
        return self._pair(_name(user or name, groups), x509.ExtendedKeyUsage(usages), names)

    def client(self, user: str, groups: Iterable[str] = ()) -> Pair:
        """A pair with which a client proves its user and groups."""
        return self._pair(_name(user, groups), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _pair(self, subject: x509.Name, *extensions: x509.ExtensionType) -> Pair:
        key = new_key()
        return Pair(self._signed(subject, key.public_key(), *extensions), pem(key))

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, *extensions: x509.ExtensionType
    ) -> str:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BEFORE)
            .not_valid_after(now + self._valid)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key, such as the one that signs service account tokens."""
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: PrivateKey) -> str:
    """A private key as PEM."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _name(user: str, groups: Iterable[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _alternative(one: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(one))
    except ValueError:
        return x509.DNSName(one)
