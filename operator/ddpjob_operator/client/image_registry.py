"""Pushes code to a registry of container images, as an image with one file: the archive.

Speaks the API of the OCI distribution specification, with the credentials that docker and podman use.
"""

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlencode, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import CODE_KEY
from ddpjob_operator.api.option_names import option
from ddpjob_operator.text.foreign_json import parsed_object

from .archive import Archive
from .errors import ClusterError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"

PLACE = re.compile(
    r"(?P<host>[a-zA-Z0-9.-]+(:[0-9]{1,5})?|\[[0-9a-f:]+\](:[0-9]{1,5})?)"
    r"/(?P<name>[a-z0-9]+((/|\.|_|__|-+)[a-z0-9]+)*)"
)
"""A registry and a repository in it, without a tag."""
DOCKER_HUB, DOCKER_HUB_KEY = "docker.io", "https://index.docker.io/v1/"
CHALLENGE = re.compile(r'([a-z]{1,20})="([^"]{0,1000})"')
"""A parameter of a WWW-Authenticate header."""

CONNECT_SECONDS, ANSWER_SECONDS, HELPER_SECONDS = 10.0, 120.0, 30.0
ANSWER_BYTES = 1 << 20
"""How much of an answer is read."""
QUOTED = 300
TOKEN_USER = "<token>"  # noqa: S105  (a name)
"""The user's name that a credential helper gives if the password is an identity token."""


@dataclass(frozen=True)
class Credentials:
    """A user of a registry."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """An identity token, in place of user and password."""

    @property
    def basic(self) -> str:
        """The value of a header that logs the user in; empty without a password."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}" if self.password else ""


@dataclass(frozen=True)
class CodeImage:
    """An image whose only file is an archive. The same archive gives the same image."""

    tag: str
    layer: bytes = field(repr=False)
    config: bytes = field(repr=False)
    manifest: bytes = field(repr=False)

    @classmethod
    def of(cls, archive: Archive) -> "CodeImage":
        """The image of an archive."""
        layer = _layer(archive)
        rootfs = {"type": "layers", "diff_ids": [digest_of(layer)]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode()
        first, *others = (
            {"mediaType": kind, "size": len(data), "digest": digest_of(data)}
            for kind, data in ((CONFIG, config), (LAYER, layer))
        )
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": first, "layers": others}
        return cls(f"ddpjob-code-{archive.digest[:16]}", layer, config, json.dumps(manifest).encode())

    @property
    def digest(self) -> str:
        """The digest by which pods name the image, so that no other one can take its place."""
        return digest_of(self.manifest)


@dataclass
class Registry:
    """A repository of images, such as `registry.example.com/team/code`."""

    host: str
    name: str
    credentials: Credentials = Credentials()
    _login: str = field(default="", repr=False)

    @classmethod
    def at(cls, place: str) -> "Registry":
        """The repository of this name, with the user's credentials for it.

        Raises:
            BadInputError: this is not the name of a repository.
        """
        found = PLACE.fullmatch(place)
        # As docker does: what comes first is a host only if it looks like one.
        if found is None or not (found["host"] == "localhost" or {".", ":"} & {*found["host"]}):
            raise BadInputError(
                f"{option('source-registry', place)}: must be a repository without a tag, such as"
                " registry.example.com/team/code"
            )
        return cls(found["host"], found["name"], credentials_for(found["host"]))

    def push(self, image: "CodeImage") -> None:
        """Pushes an image; what the registry has already is not sent again.

        Raises:
            ClusterError: the registry cannot be reached, or refuses.
        """
        try:
            for data in (image.config, image.layer):
                self._push_blob(data)
            # A tag, because registries may collect what has none.
            self._call("PUT", f"manifests/{image.tag}", image.manifest, {"Content-Type": MANIFEST})
        except ValueError as error:  # An address or a token of the registry is none.
            raise ClusterError(f"cannot understand the registry {self.host}: {error}") from None

    def __str__(self) -> str:
        return f"{self.host}/{self.name}"

    def _push_blob(self, data: bytes) -> None:
        digest = digest_of(data)
        if self._call("HEAD", f"blobs/{digest}", missing=True).status == HTTPStatus.OK:
            return
        place = self._call("POST", "blobs/uploads/").headers.get("Location", "")
        there = urljoin(self._url("blobs/uploads/"), place)
        self._call("PUT", f"{there}{'&' if urlsplit(there).query else '?'}{urlencode({'digest': digest})}", data)

    def _call(
        self,
        method: str,
        path: str,
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        missing: bool = False,
    ) -> "_Answer":
        """Sends a request, and logs in if the registry asks for it. `missing`: 404 is an answer too.

        Raises:
            ClusterError: the registry cannot be reached, or refuses.
        """
        url = self._url(path)
        headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        answer = self._send(method, url, data, headers)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self._log_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self._send(method, url, data, headers)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES and not (missing and answer.status == HTTPStatus.NOT_FOUND):
            raise ClusterError(self._refusal(answer))
        return answer

    def _send(self, method: str, url: str, data: bytes, headers: Mapping[str, str]) -> "_Answer":
        there, own = urlsplit(url), urlsplit(self._url(""))
        if there.scheme != "https" and not _is_this_machine(there.hostname):
            raise ClusterError(f"the registry {self.host} wants to be spoken to without TLS, which is refused")
        if self._login and there.netloc == own.netloc:  # Another host may take the uploads, but gets no login.
            headers = {"Authorization": self._login, **headers}
        timeout, proxy = urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS), _proxy_for(there)
        try:
            with _request_through(proxy)(
                method,
                url,
                body=data,
                headers=headers,
                timeout=timeout,
                redirect=False,
                retries=False,
                preload_content=False,
            ) as answer:
                return _Answer(answer.status, answer.reason or "", answer.headers, answer.read(ANSWER_BYTES))
        except urllib3.exceptions.HTTPError as error:
            through = f" through the proxy {proxy.rpartition('@')[2]} (HTTPS_PROXY)" if proxy else ""
            raise ClusterError(f"cannot reach the registry {self.host}{through}: {error}") from None

    def _log_in(self, challenge: str) -> None:
        """Gets the login that the registry asks for: a token for this repository, or user and password."""
        self._login = ""
        scheme, _, rest = challenge.partition(" ")
        asked = dict(CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in asked:
            self._login = self.credentials.basic
            return
        realm, scope = asked["realm"], f"repository:{self.name}:pull,push"
        known = {"service": asked["service"]} if "service" in asked else {}
        headers = {"Authorization": self.credentials.basic} if self.credentials.basic else {}
        if self.credentials.token:
            form = {"grant_type": "refresh_token", "refresh_token": self.credentials.token, "scope": scope, **known}
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._send("POST", realm, urlencode({**form, "client_id": "ddpjob"}).encode(), kind)
        else:
            query = f"{'&' if urlsplit(realm).query else '?'}{urlencode({**known, 'scope': scope})}"
            answer = self._send("GET", realm + query, b"", headers)
        if answer.status != HTTPStatus.OK:
            raise ClusterError(self._refusal(answer))
        said = _json(answer.data)
        self._login = f"Bearer {said.get('token') or said.get('access_token') or ''}"

    def _refusal(self, answer: "_Answer") -> str:
        errors = _json(answer.data).get("errors")
        first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
        why = str(first.get("message") or first.get("code") or answer.reason)[:QUOTED]
        log_in = f". Log in with: docker login {self.host}" if answer.status in {401, 403} else ""
        return f"the registry refuses to store {self}: {why} ({answer.status}){log_in}"

    def _url(self, path: str) -> str:
        if "://" in path:
            return path
        host = "registry-1.docker.io" if self.host == DOCKER_HUB else self.host
        scheme = "http" if _is_this_machine(urlsplit(f"//{host}").hostname) else "https"
        return f"{scheme}://{host}/v2/{self.name}/{path}"


@dataclass(frozen=True)
class _Answer:
    """A registry's answer, of whose body only the beginning is read."""

    status: int
    reason: str
    headers: Mapping[str, str]
    data: bytes


def _proxy_for(there: SplitResult) -> str | None:
    """The proxy of the user's environment for a host: HTTPS_PROXY, unless NO_PROXY names the host; None without one.

    As docker does, this machine is always spoken to directly.
    """
    if _is_this_machine(there.hostname) or proxy_bypass(there.netloc):
        return None
    proxy = getproxies().get("https")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _request_through(proxy: str | None) -> Callable[..., urllib3.BaseHTTPResponse]:
    """The function that sends a request, through a proxy if there is one, to which it logs in as the address says."""
    if proxy is None:
        return urllib3.request
    scheme, _, rest = proxy.partition("://")
    login, _, host = rest.rpartition("@")
    headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
    return urllib3.ProxyManager(f"{scheme}://{host}", proxy_headers=headers).request


def _is_this_machine(host: str | None) -> bool:
    """Whether a host is this machine, to which docker speaks without TLS too."""
    with suppress(ValueError):
        return ip_address(host or "").is_loopback
    return host == "localhost"


def credentials_for(host: str) -> Credentials:
    """The user's credentials for a registry, from the files and helpers of docker and podman; empty without any."""
    keys = (DOCKER_HUB_KEY, DOCKER_HUB) if host == DOCKER_HUB else (host, f"https://{host}", f"https://{host}/v1/")
    for config in _configs():
        helper = _part(config, "credHelpers").get(host) or config.get("credsStore")
        if isinstance(helper, str) and (found := _from_helper(helper, keys[0])):
            return found
        entries = _part(config, "auths")
        for key in keys:
            if found := _from_entry(_part(entries, key)):
                return found
    return Credentials()


def _configs() -> Iterator[dict[str, Any]]:
    docker = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    podman = (
        os.environ.get("REGISTRY_AUTH_FILE")
        or Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "containers/auth.json"
    )
    for file in (docker, Path(podman)):
        try:
            yield _json(file.read_bytes())
        except OSError:
            continue


def _part(config: dict[str, Any], key: str) -> dict[str, Any]:
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def _from_entry(entry: dict[str, Any]) -> Credentials | None:
    if token := entry.get("identitytoken"):
        return Credentials(token=str(token))
    try:
        user, _, password = base64.b64decode(str(entry.get("auth", ""))).decode().partition(":")
    except ValueError:
        return None
    return Credentials(user, password.rstrip("\0")) if password else None


def _from_helper(helper: str, key: str) -> Credentials | None:
    """What a credential helper of docker says; None if it has nothing, or does not exist."""
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=key.encode(),
            capture_output=True,
            timeout=HELPER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = _json(done.stdout) if done.returncode == 0 else {}
    user, secret = str(said.get("Username", "")), str(said.get("Secret", ""))
    if not secret:
        return None
    return Credentials(token=secret) if user == TOKEN_USER else Credentials(user, secret)


def _layer(archive: Archive) -> bytes:
    """A layer with the archive as its only file. The same archive gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        entry = tarfile.TarInfo(CODE_KEY)
        entry.size, entry.mode = len(archive.data), 0o644
        layer.addfile(entry, io.BytesIO(archive.data))
    return buffer.getvalue()


def digest_of(data: bytes) -> str:
    """The digest of a part of an image."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(data: bytes) -> dict[str, Any]:
    return parsed_object(data) or {}
