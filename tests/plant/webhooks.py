"""Webhooks of controllers that run on this machine. They are reached by address, as there is no DNS for Services."""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from .api import Plant
from .certificates import Authority

VALID = timedelta(days=3650)
"""How long certificates are valid. If a controller manages its own certificates, it replaces any certificate that
ends within three months with one that does not contain the address. Such controllers support only RSA keys."""


@dataclass(frozen=True)
class Webhooks:
    """Where a controller serves its webhooks, and which authority has signed its certificate."""

    url: str
    authority: Authority

    def client_config(self, path: str) -> dict[str, str]:
        """The part of a webhook's configuration that says how to reach it."""
        bundle = b64encode(self.authority.certificate.encode()).decode()
        return {"url": f"{self.url}{path}", "caBundle": bundle}

    def rewrite(self, configuration: dict[str, Any]) -> list[str]:
        """Points all webhooks of a configuration to this address. Returns their paths."""
        paths = [hook["clientConfig"]["service"]["path"] for hook in configuration["webhooks"]]
        for hook, path in zip(configuration["webhooks"], paths, strict=True):
            hook["clientConfig"] = self.client_config(path)
        return paths

    def serves(self, path: str) -> bool:
        """Whether the webhook answers. A controller may report that it is ready before its webhooks answer."""
        trusting = ssl.create_default_context(cadata=self.authority.certificate)
        try:
            with urllib.request.urlopen(f"{self.url}{path}", data=b"", context=trusting, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code != 404
        except OSError:
            return False


def certify(plant: Plant, folder: Path, *, authority: str, service: str, namespace: str, secret: str) -> Authority:
    """Puts certificates that a controller accepts, and that are valid for an address, into a Secret and a folder."""
    signer = Authority(authority, VALID, rsa.generate_private_key(65537, 2048))
    name = f"{service}.{namespace}.svc"
    pair = signer.server(name, reached_as=(name, "127.0.0.1"))
    files = {"ca.crt": signer.certificate, "ca.key": signer.key, "tls.crt": pair.certificate, "tls.key": pair.key}
    metadata = {"name": secret, "namespace": namespace}
    plant.api.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": metadata, "stringData": files})
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    return signer


def is_ready(port: int) -> bool:
    """Whether the controller whose probes are at this port reports that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def create_all(plant: Plant, documents: list[dict[str, Any]]) -> None:
    """Creates these objects with one call of kubectl."""
    plant.kubectl("create", "-f", "-", input="\n---\n".join(map(json.dumps, documents)))
