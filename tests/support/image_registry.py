"""A real registry of images: Debian's docker-registry, if it is installed."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import urllib3

from tests.support.ports import hold_port


@contextlib.contextmanager
def real_registry(directory: Path, listens_on: str = "127.0.0.1") -> Iterator[str]:
    """Runs Debian's docker-registry; yields its address on this machine."""
    port = hold_port()
    config = directory / "registry.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {directory / 'store'}}}}}"
    config.write_text(f"version: 0.1\n{storage}\nhttp: {{addr: '{listens_on}:{port}'}}\n")
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", config], stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"http://{address}/v2/", retries=False, timeout=1).status == 200
    return False
