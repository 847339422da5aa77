"""The size *api*: etcd and kube-apiserver, with certificates, RBAC and an audit log as on a real cluster."""

import json
import os
import re
import shutil
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import urllib3

from tests.support.api_client import ApiClient, ApiError
from tests.support.waiting import wait_for

from . import build
from .certificates import Authority, Pair, new_key, pem
from .directory import plant_directory
from .errors import PlantError
from .processes import Programs, reserve_port

SERVICE_RANGE = "10.96.0.0/16"
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
FIRST_SERVICE = "10.96.0.1"
ADMINS = "system:masters"
UP_SECONDS = 90.0
HERE = Path(__file__).parent

T = TypeVar("T")


@dataclass
class Plant:
    """A running API server with its files, programs and clients.

    directory  all of the plant's files, including logs/
    url        the URL of the API server
    programs   the running programs
    service_accounts  whether a pod needs a service account; the controller manager then creates one per namespace
    """

    directory: Path
    url: str
    authority: Authority
    programs: Programs = field(repr=False)
    service_accounts: bool

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of a cluster admin."""
        return self.kubeconfig_for("admin", ADMINS)

    @property
    def audit_log(self) -> Path:
        """A file with one JSON event per answered request, each on one line."""
        return self.directory / "logs" / "audit.log"

    def kubeconfig_for(self, user: str, *groups: str) -> Path:
        """The kubeconfig of a user with a certificate. RBAC decides what the user may do."""
        # A colon is replaced, because KUBECONFIG is a list of files separated by colons.
        file = self.directory / "kubeconfigs" / f"{re.sub('[:/]', '-', '+'.join([user, *groups]))}.yaml"
        if not file.exists():
            self._write(file, _identity(self.authority.client(user, groups)))
        return file

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig of an existing service account, with a token that the API server has issued for it."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "24h").strip()
        file = self.directory / "kubeconfigs" / f"service-account-{namespace}-{name}.yaml"
        self._write(file, {"token": token})
        return file

    def kubectl(self, *arguments: str | Path, input: str | None = None, kubeconfig: Path | None = None) -> str:  # noqa: A002 - as subprocess.run calls it.
        """Returns what kubectl prints, run as an admin or as the user of `kubeconfig`.

        Raises:
            PlantError: kubectl failed. The message is its output.
        """
        done = subprocess.run(
            [build.path("kubectl"), *arguments],
            input=input,
            env=os.environ | self.environment(kubeconfig),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = f"{done.stdout}{done.stderr}"
            raise PlantError(f"kubectl {' '.join(map(str, arguments))} exited with {done.returncode}:\n{said}")
        return done.stdout

    def new_namespace(self, **labels: str) -> str:
        """Creates a namespace for one test, in which pods can be created immediately. Returns its name."""
        metadata = {"generateName": "test-", "labels": labels}
        name = str(self.api.create("/api/v1/namespaces", {"metadata": metadata})["metadata"]["name"])
        if self.service_accounts:
            path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            self.wait(f"the service account of {name}", lambda: self.get(path))
        return name

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """The environment with which a program can use this plant, by default as an admin."""
        cache = str(self.directory / "kubectl-cache")
        return {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "KUBECACHEDIR": cache}

    def admin(self) -> ssl.SSLContext:
        """The TLS context for connections that a test opens itself, as an admin."""
        context = ssl.create_default_context(cadata=self.authority.certificate)
        context.load_cert_chain(self.directory / "pki" / "admin.crt", self.directory / "pki" / "admin.key")
        return context

    @cached_property
    def api(self) -> ApiClient:
        """An admin's client."""
        return ApiClient(self.url, self.admin())

    def get(self, path: str) -> Any:
        """The JSON at a path of the API, read as an admin; None if the path does not exist."""
        return self.api.get(path)

    def text(self, path: str) -> str:
        """The text at a path of the API, such as a container's log, read as an admin."""
        return self.api.read(path).decode()

    def wait(self, what: str, condition: Callable[[], T], seconds: float = UP_SECONDS) -> T:
        """Waits, as `wait_for` does, for the first true value of a condition, and returns it.

        Raises:
            PlantError: A program of the plant ended during the wait.
        """

        def checked() -> T:
            self.programs.check()
            return condition()

        return wait_for(what, checked, seconds, story=self._last_words)

    def ready(self) -> bool:
        """Whether the API server reports that it is ready."""
        try:
            return self.api.read("/readyz") == b"ok"
        except (ApiError, urllib3.exceptions.HTTPError):
            return False

    def _last_words(self) -> str:
        return "\n".join(program.last_words() for program in self.programs.running.values())

    def _write(self, file: Path, identity: dict[str, str]) -> None:
        cluster = {"server": self.url, "certificate-authority-data": _base64(self.authority.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "plant", "cluster": cluster}],
            "users": [{"name": "user", "user": identity}],
            "contexts": [{"name": "plant", "context": {"cluster": "plant", "user": "user"}}],
            "current-context": "plant",
        }
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(config, indent=1))
        file.chmod(0o600)


@contextmanager
def start_api(*flags: str, address: str = "127.0.0.1", service_accounts: bool = False) -> Iterator[Plant]:
    """Starts an API server, waits until it is ready, and stops it when the block ends.

    flags             more flags of kube-apiserver
    address           the address to listen on, which must be an address of this machine
    service_accounts  whether a pod needs a service account, as when the controller manager creates one per namespace

    Raises:
        PlantError: Something is missing or did not start. The message contains the relevant end of a log.
    """
    with plant_directory() as directory, reserve_port(address) as held:
        port = held.getsockname()[1]
        authority = Authority()
        plant = Plant(
            directory, f"https://{address}:{port}", authority, Programs(directory / "logs"), service_accounts
        )
        try:
            _write_pki(directory / "pki", authority, address)
            _start_etcd(plant)
            admission = [] if service_accounts else ["--disable-admission-plugins=ServiceAccount"]
            _start_apiserver(plant, address, port, *admission, *flags)
            plant.wait("the API server", plant.ready)
            yield plant
        finally:
            plant.api.close()
            plant.programs.kill()


def _start_etcd(plant: Plant) -> None:
    data = plant.directory / "etcd"
    data.mkdir(mode=0o700)
    # Clients connect through a socket file. There are no peers, but etcd requires an address for them.
    nobody = "http://127.0.0.1:1"
    plant.programs.start(
        "etcd",
        build.path("etcd"),
        "--name=plant",
        f"--data-dir={data}/data",
        "--unsafe-no-fsync",
        f"--listen-client-urls=unix://{data}/clients",
        f"--advertise-client-urls={nobody}",
        "--listen-peer-urls=http://127.0.0.1:0",
        f"--initial-advertise-peer-urls={nobody}",
        f"--initial-cluster=plant={nobody}",
    )


def _start_apiserver(plant: Plant, address: str, port: int, *flags: str) -> None:
    pki = plant.directory / "pki"
    shutil.copy(HERE / "audit.yaml", plant.directory)
    # If pods can reach the API server, the Service `kubernetes` leads to it. A loopback address is not valid in
    # endpoints.
    reconciler = "none" if ip_address(address).is_loopback else "lease"
    plant.programs.start(
        "kube-apiserver",
        build.path("kube-apiserver"),
        f"--etcd-servers=unix://{plant.directory}/etcd/clients",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--endpoint-reconciler-type={reconciler}",
        f"--secure-port={port}",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver.crt",
        f"--kubelet-client-key={pki}/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/tokens.key",
        f"--service-account-signing-key-file={pki}/tokens.key",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--audit-policy-file={plant.directory}/audit.yaml",
        f"--audit-log-path={plant.audit_log}",
        "--audit-log-maxsize=100000",
        *flags,
    )


def _write_pki(folder: Path, authority: Authority, address: str) -> None:
    names = (*SERVICE_NAMES, FIRST_SERVICE, "localhost", "127.0.0.1", address)
    server = authority.server("apiserver", reached_as=set(names), user="kube-apiserver", groups=(ADMINS,))
    admin = authority.client("admin", (ADMINS,))
    folder.mkdir(mode=0o700)
    for name, text in {
        "ca.crt": authority.certificate,
        "apiserver.crt": server.certificate,
        "apiserver.key": server.key,
        "admin.crt": admin.certificate,
        "admin.key": admin.key,
        "tokens.key": pem(new_key()),
    }.items():
        (folder / name).write_text(text)


def _identity(pair: Pair) -> dict[str, str]:
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
