"""Installs packages beside an image's own: the text of this file runs there, on the Python of any image from 3.8 on.

Its arguments are a directory and pip's arguments. The directory becomes a virtual environment that sees all that the
image has, so that pip fetches only what is missing. PYTHONPATH should lead to its `site`.
"""

from __future__ import annotations

import sys

if "" in sys.path:
    sys.path.remove("")  # The working directory, which is the program's: we must not import a random.py in it.

import importlib.util
import json
import os
import re
import signal
import subprocess
import time
import venv
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NoReturn

INDEX = {"PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "PIP_EXTRA_INDEX_URL": ("UV_EXTRA_INDEX_URL",)}
"""Variables of uv that count if pip's own is not set."""

OPTIONS = (
    *("--no-input", "--no-cache-dir", "--progress-bar", "off", "--disable-pip-version-check"),
    "--no-warn-script-location",
)
THERE = "Requirement already satisfied"
"""How pip begins a line about a package that the image has."""

MAY_PASS = re.compile(r"Retrying \(|timed out|Connection|Temporary failure|HTTP error 5|50\d Server|No space left")
"""Words about an index that does not answer, or about a disk: another try, or another node, may do better."""

PASSWORD = re.compile(r"(?<=://)[^/\s]+(?=@)")
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""As pip fills it in within a file; in its arguments it does not."""

SECRETS: list[str] = []
"""The values that were filled in: pip's output may have them anywhere in an address."""
LEAST_SECRET = 6
"""Characters; something shorter, such as a user's name, may be a part of any word."""

NO_PIP = "the image has no pip, ensurepip or uv; choose with --image one that has any of them, or has the packages"


def main(directory: str, words: list[str]) -> None:
    """Installs what the arguments name; ends the process with a failure report if that is impossible."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))  # Otherwise a container's first process ignores it.
    began, path, own = time.monotonic(), os.environ.pop("PYTHONPATH", ""), f"{directory}/site"
    if path and own not in path.split(os.pathsep):
        _fail(f"installing packages replaces the image's PYTHONPATH={path}; to keep it: --env PYTHONPATH={path}")
    _say(f"installing {' '.join(words)}")
    filled = [_filled_in(word) for word in words]
    python = _environment(Path(directory))
    _provide_pip(python)
    before = _installed(own)
    code, said = _pip(python, [*_torch_as_it_is(directory), *filled])
    if code:
        _fail(*_why(said))
    new = sorted(_installed(own) - before)
    what = ", ".join(f"{name} {version}" for name, version in new) or "nothing (the image has everything)"
    _say(f"installed {what} in {time.monotonic() - began:.1f} s")


def _filled_in(word: str) -> str:
    """The text with the values of its variables filled in."""
    for name in VARIABLE.findall(word):
        if not os.environ.get(name):
            _fail(f"cannot install {word}: the variable {name} is not set")
        if len(os.environ[name]) >= LEAST_SECRET:
            SECRETS.append(os.environ[name])
    return VARIABLE.sub(lambda found: os.environ[found[1]], word)


def _environment(directory: Path) -> str:
    """Recreates the virtual environment, since a pod may start twice; returns its Python."""
    venv.EnvBuilder(clear=True, symlinks=True).create(directory)
    own, seen = directory / "site", [path for path in sys.path if path and Path(path).is_dir()]
    (site,) = directory.glob("lib/python*/site-packages")
    own.symlink_to(site.relative_to(directory))
    (own / "image.pth").write_text("\n".join(seen), encoding="utf-8")
    return str(directory / "bin" / "python")


def _provide_pip(python: str) -> None:
    """The image's own or, if it has none, the one that comes with Python or that uv fetches."""
    if importlib.util.find_spec("pip"):
        return
    for name, urls in INDEX.items():
        found = [os.environ[url] for url in urls if url in os.environ]
        if found:
            os.environ.setdefault(name, found[0])
    for words in ([python, "-Im", "ensurepip"], ["uv", "pip", "install", "--no-cache", "--python", python, "pip"]):
        try:
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            continue
        return
    _fail(NO_PIP)


def _torch_as_it_is(directory: str) -> list[str]:
    """Arguments that make pip keep the image's torch: what is built for another is not installed."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return []
    file = Path(directory, "constraints.txt")
    file.write_text(f"torch=={version}\n", encoding="utf-8")
    return ["--constraint", str(file)]


def _pip(python: str, words: list[str]) -> tuple[int, list[str]]:
    """Passes on pip's output, and returns its exit code and that output."""
    command = [python, "-m", "pip", "install", *OPTIONS, *words]
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert pip.stdout is not None
    said = []
    for line in pip.stdout:
        said.append(_masked(line.rstrip()))
        if not line.startswith(THERE):
            _say(said[-1])
    return pip.wait(), said


def _installed(own: str) -> set[tuple[str, str]]:
    """Names and versions."""
    return {(one.metadata["Name"], one.version) for one in metadata.distributions(path=[own])}


def _why(said: list[str]) -> tuple[str, str]:
    """Pip's last error in one line, and whether another try can help, as a cause."""
    errors: list[list[str]] = [[]]
    for line in said:
        if line.startswith("ERROR: ") and not line.startswith("ERROR: ResolutionImpossible"):
            errors.append([line[len("ERROR: ") :]])
        elif line.startswith(" ") and len(errors) > 1:
            errors[-1].append(line)
    told = " ".join(" ".join(errors[-1] or said[-1:]).split())
    kept = [line.split()[-1] for line in said if "(constraint) torch" in line]
    if kept:
        told += f" The image's {kept[-1]} stays"
    warnings = [line for line in said if MAY_PASS.search(line)]
    if warnings:
        return f"cannot install packages: {told}: {warnings[-1][:300]}", "Application"
    return f"cannot install packages: {told}", "ConfigError"


def _fail(message: str, cause: str = "ConfigError") -> NoReturn:
    """Leaves a failure report as a trainer does: after a ConfigError it is not tried again."""
    report = json.dumps({"cause": cause, "message": _masked(message)[:500]})
    _say(f"error: {message}")
    with suppress(OSError):  # Otherwise the log is all that there is.
        Path(os.environ.get("DDPJOB_TERMINATION_LOG", "/dev/termination-log")).write_text(report, encoding="utf-8")
    sys.exit(2)


def _say(text: str) -> None:
    sys.stdout.write(f"{_masked(text)}\n")
    sys.stdout.flush()


def _masked(text: str) -> str:
    for secret in sorted(SECRETS, key=len, reverse=True):  # One may be the beginning of another.
        text = text.replace(secret, "****")
    return PASSWORD.sub("****", text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
