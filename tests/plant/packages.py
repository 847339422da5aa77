"""Programs from Debian packages that are only unpacked: installing them would start services on this machine."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import build
from .errors import PlantError

KEPT = build.CACHE / "debian"


def what_is_lacking() -> str | None:
    """Why no package can be downloaded here, in a few words; None if one can be."""
    return None if shutil.which("apt-get") and os.geteuid() == 0 else "no apt-get, or not root"


def unpacked(*names: str) -> Path:
    """The files of these packages, in a folder of the cache. They are downloaded if they are missing.

    The packages that these packages depend on are left out.

    Raises:
        PlantError: The packages cannot be downloaded.
    """
    folder = KEPT / f"{names[0]}-{hashlib.sha256(repr(names).encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    with build.locked(KEPT / "lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix="making-", dir=KEPT) as making:
                made = Path(making, "made")
                made.mkdir()
                unpack(made, *names)
                made.rename(folder)
    return folder


def unpack(folder: Path, *names: str) -> None:
    """Downloads packages, and unpacks them into a folder.

    Raises:
        PlantError: They cannot be downloaded.
    """
    if _apt(folder, "download", *names).returncode:
        # The list of packages may be missing, or older than the packages on the server.
        for done in (_apt(folder, "update"), _apt(folder, "download", *names)):
            if done.returncode:
                raise PlantError(f"{' '.join(done.args)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        package.unlink()


def _apt(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["apt-get", "--quiet", *words], cwd=folder, capture_output=True, text=True, check=False)
