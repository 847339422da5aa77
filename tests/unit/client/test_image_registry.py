"""Code that goes through a registry of images: what is pushed, how, and with whose login."""

import base64
import io
import json
import re
import shutil
import socket
import socketserver
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import ClusterError
from ddpjob_operator.client.archive import Archive, File, pack
from ddpjob_operator.client.image_registry import (
    MANIFEST,
    CodeImage,
    Credentials,
    Registry,
    _proxy_for,
    credentials_for,
    digest_of,
)

from tests.support.image_registry import answers, real_registry
from tests.support.waiting import wait_for

ALICE = base64.b64encode(b"alice:secret").decode()
CODE: Archive = pack([File("train.py", b"print('here')")])


@dataclass
class Server:
    """A registry. It wants a token, which it gives to alice."""

    port: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    full: bool = False

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, login: str, data: bytes) -> tuple[int, dict[str, str], Any]:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        _, _, name = path.partition("/v2/team/code/")
        if path.startswith("/token"):
            assert "scope=repository%3Ateam%2Fcode%3Apull%2Cpush" in path
            return (200, {}, {"token": "t0ken"}) if login == f"Basic {ALICE}" else (401, {}, {})
        if login != "Bearer t0ken":
            realm = f'Bearer realm="http://{self.host}/token",service="registry"'
            return 401, {"WWW-Authenticate": realm}, {"errors": [{"code": "UNAUTHORIZED", "message": "log in"}]}
        if self.full and method == "PUT":
            return 507, {}, {"errors": [{"code": "DENIED", "message": "quota exceeded"}]}
        match method, name.partition("/")[0]:
            case "HEAD", "blobs":
                return 200 if name.removeprefix("blobs/") in self.blobs else 404, {}, None
            case "POST", "blobs":
                return 202, {"Location": "/v2/team/code/blobs/uploads/7?state=x"}, None
            case "PUT", "blobs":
                assert "state=x&digest=" in name
                assert digest_of(data) in name.replace("%3A", ":")
                self.blobs[digest_of(data)] = data
            case "PUT", "manifests":
                self.manifests[name.removeprefix("manifests/")] = data
        return 201, {}, None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, said = server.answer(
                self.command, self.path, self.headers.get("Authorization", ""), data
            )
            body = b"" if said is None else json.dumps(said).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_GET = do_HEAD = do_POST = do_PUT = reply  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = http.server_port
    threading.Thread(target=http.serve_forever, daemon=True).start()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none"))
    (tmp_path / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": ALICE}}}))
    yield server
    http.shutdown()
    http.server_close()


def test_the_image_has_the_archive_as_its_only_file_and_is_the_same_each_time() -> None:
    image = CodeImage.of(CODE)
    assert image == CodeImage.of(pack([File("train.py", b"print('here')")]))
    with tarfile.open(fileobj=io.BytesIO(image.layer)) as layer:
        (entry,) = layer.getmembers()
        content = layer.extractfile(entry)
        assert content is not None
        assert (entry.name, entry.mode, content.read()) == ("code.zip", 0o644, CODE.data)
    manifest = json.loads(image.manifest)
    assert [part["digest"] for part in manifest["layers"]] == [digest_of(image.layer)]
    assert json.loads(image.config)["rootfs"]["diff_ids"] == [digest_of(image.layer)]


def test_it_is_pushed_with_the_users_login_and_what_is_there_is_not_sent_again(server: Server) -> None:
    image = CodeImage.of(CODE)
    Registry.at(f"{server.host}/team/code").push(image)
    assert server.manifests == {image.tag: image.manifest}
    assert set(server.blobs.values()) == {image.config, image.layer}
    server.asked.clear()
    Registry.at(f"{server.host}/team/code").push(image)
    assert not [asked for asked in server.asked if asked.startswith("POST")]


def test_a_registry_that_refuses_is_quoted_with_what_to_do(server: Server, tmp_path: Path) -> None:
    place, image = f"{server.host}/team/code", CodeImage.of(CODE)
    server.full = True
    with pytest.raises(ClusterError, match=r"the registry refuses to store .*/team/code: quota exceeded \(507\)$"):
        Registry.at(place).push(image)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ClusterError, match=rf"\(401\)\. Log in with: docker login {server.host}$"):
        Registry.at(place).push(image)
    with pytest.raises(ClusterError, match="cannot reach the registry"):
        Registry("127.0.0.1:1", "team/code").push(image)


@pytest.fixture
def proxy(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """A proxy that leads to the registry, by TLS, whatever it is asked for. Its address, and what it was asked."""
    made = ("req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=r")
    for_host = ("-addext", "subjectAltName=DNS:registry.example.com", "-keyout", "key.pem", "-out", "cert.pem")
    subprocess.run(["openssl", *made, *for_host], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    context, asked = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), list[str]()
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append("".join(iter(lambda: self.rfile.readline().decode(), "\r\n")))
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            with (
                context.wrap_socket(self.connection, server_side=True) as inside,
                socket.create_connection(("127.0.0.1", server.port)) as registry,
            ):
                back = threading.Thread(target=copy, args=(registry, inside))
                back.start()
                copy(inside, registry)
                back.join()

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{proxy.server_address[1]}", asked
        proxy.shutdown()


@pytest.mark.parametrize(("scheme", "login"), [("", ""), ("http://", "me:s%40fe@")])
def test_it_is_pushed_through_the_users_proxy(
    server: Server, proxy: tuple[str, list[str]], scheme: str, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = proxy
    monkeypatch.setenv("HTTPS_PROXY", f"{scheme}{login}{address}")
    image = CodeImage.of(CODE)
    Registry("registry.example.com", "team/code", ALICES).push(image)
    assert server.manifests == {image.tag: image.manifest}
    assert asked
    assert all(text.startswith("CONNECT registry.example.com:443 ") for text in asked)
    sent = f"basic {base64.b64encode(b'me:s@fe').decode()}".lower()
    assert all((sent in text.lower()) == bool(login) for text in asked)


@pytest.mark.parametrize(
    ("host", "no_proxy", "through"),
    [
        ("registry.example.com", "", "http://p:1"),
        ("registry.example.com", "example.com,other", None),
        ("registry.example.com:5000", ".example.com", None),
        ("registry.example.com", "*", None),
        ("registry.example.com", "other.example.com", "http://p:1"),
        ("127.0.0.1:5000", "", None),
        ("localhost:5000", "", None),
    ],
)
def test_no_proxy_names_the_hosts_that_are_spoken_to_directly(
    host: str, no_proxy: str, through: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "p:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert _proxy_for(urlsplit(f"https://{host}/v2/")) == through


@pytest.mark.parametrize("proxy", ["socks5://me:hidden@p:1", "http://me:hidden@[", "http://me:hidden@127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    where = re.escape(proxy.partition("@")[2])
    said = rf"cannot reach the registry r\.example\.com through the proxy {where} \(HTTPS_PROXY\): "
    with pytest.raises(ClusterError, match=said) as error:
        Registry("r.example.com", "team/code").push(CodeImage.of(CODE))
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    "place", ["team/code", "registry.example.com", "registry.example.com/code:3", "a.b/C", "a.b/c//d", ""]
)
def test_what_is_no_repository_is_refused_with_an_example(place: str) -> None:
    with pytest.raises(BadInputError, match="must be a repository without a tag, such as"):
        Registry.at(place)


def test_a_login_is_sent_to_no_other_host_and_not_without_tls() -> None:
    registry = Registry("registry.example.com", "team/code", Credentials("alice", "secret"))
    with pytest.raises(ClusterError, match="wants to be spoken to without TLS, which is refused"):
        registry._log_in('Bearer realm="http://registry.example.com/token"')
    assert "secret" not in repr(registry)


@pytest.mark.parametrize("place", ["http://registry.example.com/v2/up?x=1", "http://[/"])
def test_an_upload_without_tls_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries behind a proxy that ends TLS may name such a place."""
    sent = list[str]()

    def answered(method: str, url: str, **_: Any) -> urllib3.HTTPResponse:
        sent.append(url)
        return urllib3.HTTPResponse(
            io.BytesIO(), {"Location": place}, 404 if method == "HEAD" else 202, preload_content=False
        )

    monkeypatch.setattr(urllib3, "request", answered)
    with pytest.raises(ClusterError, match=r"registry\.example\.com"):
        Registry("registry.example.com", "team/code").push(CodeImage.of(CODE))
    assert all(url.startswith("https://") for url in sent)


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost:5000", True), ("127.0.0.1:5000", True), ("[::1]:5000", True), ("127.example.com", False)],
)
def test_only_this_machine_is_spoken_to_without_tls(host: str, *, local: bool) -> None:
    assert Registry(host, "code")._url("x").startswith("http://") == local


NONSENSE: dict[str, tuple[int, dict[str, str], bytes]] = {
    "a status that nobody knows": (599, {}, b"x"),
    "deep JSON": (400, {}, b"[" * 100_000),
    "a realm that is no address": (401, {"WWW-Authenticate": 'Bearer realm="https://[/"'}, b"x"),
    "a control character in a message": (400, {}, b'{"errors": [{"message": "\\u001b[2J"}]}'),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_of_a_registry_is_one_error(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, headers, body = NONSENSE[what]
    monkeypatch.setattr(
        urllib3,
        "request",
        lambda *_, **__: urllib3.HTTPResponse(io.BytesIO(body), headers, status, preload_content=False),
    )
    with pytest.raises(ClusterError, match="the registry"):
        Registry("registry.example.com", "team/code").push(CodeImage.of(CODE))


def test_a_token_that_has_expired_is_renewed_with_the_users_login(server: Server) -> None:
    registry = Registry.at(f"{server.host}/team/code")
    registry._login = "Bearer old"
    registry.push(CodeImage.of(CODE))
    assert server.manifests


CONFIGS: dict[str, tuple[dict[str, Any], Credentials]] = {
    "a password": ({"auths": {"a.example.com": {"auth": ALICE}}}, Credentials("alice", "secret")),
    "with a scheme": ({"auths": {"https://a.example.com": {"auth": ALICE}}}, Credentials("alice", "secret")),
    "an identity token": ({"auths": {"a.example.com": {"identitytoken": "long"}}}, Credentials(token="long")),
    "a helper": ({"credsStore": "fake"}, Credentials("helped", "by it")),
    "a helper for it": ({"credHelpers": {"a.example.com": "fake"}}, Credentials("helped", "by it")),
    "a helper that is missing": ({"credsStore": "missing", "auths": {}}, Credentials()),
    "another registry": ({"auths": {"b.example.com": {"auth": ALICE}}}, Credentials()),
    "lists for maps": ({"auths": [], "credHelpers": ["fake"]}, Credentials()),
    "nonsense": ({"auths": {"a.example.com": {"auth": "%"}}}, Credentials()),
    "half of something": ({"auths": {"a.example.com": {"auth": "a"}}}, Credentials()),
    "no UTF-8": ({"auths": {"a.example.com": {"auth": "/w=="}}}, Credentials()),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_the_credentials_are_those_of_docker(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, expected = CONFIGS[what]
    helper = tmp_path / "docker-credential-fake"
    helper.write_text(
        '#!/bin/sh\nread host; test "$host" = a.example.com && echo \'{"Username": "helped", "Secret": "by it"}\'\n'
    )
    helper.chmod(0o755)
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none"))
    assert credentials_for("a.example.com") == expected


HELPER = """#!/bin/sh
test "$1" = get || exit 2
read key
case "$key" in
  https://index.docker.io/v1/) echo '{"Username": "of the hub", "Secret": "s"}' ;;
  token.example.com) echo '{"Username": "<token>", "Secret": "s"}' ;;
  empty.example.com) echo '{"Username": "", "Secret": ""}' ;;
  fails.example.com) echo '{"Username": "no", "Secret": "s"}'; exit 1 ;;
  *) echo "not found: $key"; exit 1 ;;
esac
"""
HELPED: dict[str, Credentials] = {
    "docker.io": Credentials("of the hub", "s"),
    "token.example.com": Credentials(token="s"),
    "empty.example.com": Credentials("alice", "secret"),
    "fails.example.com": Credentials("alice", "secret"),
    "other.example.com": Credentials(),
}


@pytest.mark.parametrize("host", HELPED)
def test_a_helper_is_asked_before_the_file(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-fake"
    helper.write_text(HELPER)
    helper.chmod(0o755)
    auths = {name: {"auth": ALICE} for name in HELPED if name != "other.example.com"}
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "fake", "auths": auths}))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none"))
    assert credentials_for(host) == HELPED[host]


FILES: dict[str, dict[str, str]] = {
    "d/config.json": {"DOCKER_CONFIG": "d"},
    "home/.docker/config.json": {},
    "auth.json": {"REGISTRY_AUTH_FILE": "auth.json"},
    "run/containers/auth.json": {"XDG_RUNTIME_DIR": "run"},
}
"""The files, and the variables that lead to them."""


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("a.example.com", "a.example.com"),
        ("a.example.com", "https://a.example.com/v1/"),
        ("docker.io", "https://index.docker.io/v1/"),
        ("docker.io", "docker.io"),
    ],
)
@pytest.mark.parametrize("file", FILES)
def test_the_files_of_docker_and_podman_are_read(
    host: str, key: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, place in {"HOME": "home", **FILES[file]}.items():
        monkeypatch.setenv(name, str(tmp_path / place))
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    password = base64.b64encode(b"alice:se:cret\0").decode()
    (tmp_path / file).write_text(json.dumps({"auths": {key: {"auth": password}}}))
    assert credentials_for(host) == Credentials("alice", "se:cret")


def answered(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, dict[str, str], Any]) -> list[tuple[Any, ...]]:
    """What a registry that answers so is asked: method, URL, Authorization and body."""
    asked, left = list[tuple[Any, ...]](), list(answers)

    def request(method: str, url: str, *, body: bytes, headers: dict[str, str], **_: Any) -> urllib3.HTTPResponse:
        asked.append((method, url, headers.get("Authorization"), body))
        status, given, said = left.pop(0)
        data = io.BytesIO(json.dumps(said).encode())
        return urllib3.HTTPResponse(data, given, status, reason="the reason", preload_content=False)

    monkeypatch.setattr(urllib3, "request", request)
    return asked


ALICES = Credentials("alice", "secret")
SCOPE = "scope=repository%3Ateam%2Fcode%3Apull%2Cpush"


@pytest.mark.parametrize(
    ("credentials", "challenge", "login"),
    [
        (ALICES, 'Basic realm="https://r.example.com"', f"Basic {ALICE}"),
        (ALICES, 'Bearer service="registry"', f"Basic {ALICE}"),
        (ALICES, "", f"Basic {ALICE}"),
        (Credentials("alice"), "Basic", ""),
    ],
)
def test_who_is_asked_for_a_password_sends_it(credentials: Credentials, challenge: str, login: str) -> None:
    registry = Registry("r.example.com", "team/code", credentials, "Bearer old")
    registry._log_in(challenge)
    assert registry._login == login


@pytest.mark.parametrize(
    ("credentials", "challenge", "said", "asked"),
    [
        (ALICES, 'Bearer realm="https://a.example.com/t",service="s"', {"token": "t"},
         ("GET", f"https://a.example.com/t?service=s&{SCOPE}", f"Basic {ALICE}", b"")),
        (ALICES, 'bearer realm="https://a.example.com/t?x=1"', {"access_token": "t"},
         ("GET", f"https://a.example.com/t?x=1&{SCOPE}", f"Basic {ALICE}", b"")),
        (Credentials(), 'Bearer realm="https://a.example.com/t"', {"token": "t", "access_token": "other"},
         ("GET", f"https://a.example.com/t?{SCOPE}", None, b"")),
        (Credentials(token="i"), 'Bearer realm="https://a.example.com/t",service="s"', {"access_token": "t"},
         ("POST", "https://a.example.com/t", None,
          f"grant_type=refresh_token&refresh_token=i&{SCOPE}&service=s&client_id=ddpjob".encode())),
    ],
)  # fmt: skip
def test_who_is_asked_for_a_token_gets_one(
    credentials: Credentials, challenge: str, said: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = answered(monkeypatch, (200, {}, said))
    registry = Registry("r.example.com", "team/code", credentials, "Bearer old")
    registry._log_in(challenge)
    assert (requests, registry._login) == ([asked], "Bearer t")


@pytest.mark.parametrize(
    ("place", "url", "login"),
    [
        ("/up/7", "https://r.example.com/up/7?", "Bearer t"),
        ("/up/7?state=x", "https://r.example.com/up/7?state=x&", "Bearer t"),
        ("", "https://r.example.com/v2/team/code/blobs/uploads/?", "Bearer t"),
        ("https://storage.example.com/7", "https://storage.example.com/7?", None),
        ("https://r.example.com:444/7", "https://r.example.com:444/7?", None),
    ],
)
def test_a_part_goes_where_the_registry_says_and_only_the_registry_gets_the_login(
    place: str, url: str, login: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = answered(monkeypatch, (404, {}, None), (202, {"Location": place}, None), (201, {}, None))
    Registry("r.example.com", "team/code", ALICES, "Bearer t")._push_blob(b"x")
    parts, digest = "https://r.example.com/v2/team/code/blobs", digest_of(b"x")
    assert requests == [
        ("HEAD", f"{parts}/{digest}", "Bearer t", b""),
        ("POST", f"{parts}/uploads/", "Bearer t", b""),
        ("PUT", f"{url}digest={digest.replace(':', '%3A')}", login, b"x"),
    ]


@pytest.mark.parametrize(
    ("status", "said", "why"),
    [
        (400, {"errors": [{"message": "too large", "code": "SIZE"}, {"message": "x"}]}, "too large (400)"),
        (404, {"errors": [{"code": "NAME_UNKNOWN"}]}, "NAME_UNKNOWN (404)"),
        (300, {"errors": [{"message": "x" * 301}]}, f"{'x' * 300} (300)"),
        (500, {"errors": []}, "the reason (500)"),
        (500, {"errors": ["x"]}, "the reason (500)"),
        (500, {"errors": {"0": {}}}, "the reason (500)"),
        (500, ["x"], "the reason (500)"),
        (403, {}, "the reason (403). Log in with: docker login docker.io"),
    ],
)
def test_why_a_registry_refuses(status: int, said: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = answered(monkeypatch, (status, {}, said))
    with pytest.raises(ClusterError) as error:
        Registry("docker.io", "team/code")._call("PUT", "manifests/x", b"x")
    assert str(error.value) == f"the registry refuses to store docker.io/team/code: {why}"
    assert requests == [("PUT", "https://registry-1.docker.io/v2/team/code/manifests/x", None, b"x")]


@pytest.mark.parametrize(
    ("place", "host", "name"),
    [
        ("localhost/code", "localhost", "code"),
        ("registry:5000/team/my-code", "registry:5000", "team/my-code"),
        ("[::1]:5000/a__b/c.d", "[::1]:5000", "a__b/c.d"),
        ("r.example.com/team/code", "r.example.com", "team/code"),
    ],
)
def test_the_name_of_a_repository_begins_with_a_host(place: str, host: str, name: str) -> None:
    registry = Registry.at(place)
    assert (registry.host, registry.name, str(registry)) == (host, name, place)


@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="left out: docker-registry is not on PATH")
def test_a_real_registry_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    image = CodeImage.of(CODE)
    with real_registry(tmp_path) as address:
        wait_for("the registry", lambda: answers(address), 30)
        Registry.at(f"{address}/team/code").push(image)
        url = f"http://{address}/v2/team/code"
        found = urllib3.request("GET", f"{url}/manifests/{image.digest}", headers={"Accept": MANIFEST})
        assert (found.status, found.data) == (200, image.manifest)
        layer = json.loads(found.data)["layers"][0]["digest"]
        assert urllib3.request("GET", f"{url}/blobs/{layer}").data == image.layer
