"""Installs packages into a container, in addition to those of its image.

Its arguments are a directory and the arguments of pip. It creates a virtual environment in the directory, in which
the image's packages are visible too, so that pip fetches only those that are missing. The trainer's PYTHONPATH must
contain the subdirectory `site`.

A pod of `ddpjob submit --pip` gets this file as text (`python -c`), so it must run alone, and on every Python from
3.8 on. In a held gang the supervisor runs it for a program (`run_packages`).
"""

from __future__ import annotations

import sys

if "" in sys.path:
    # The working directory belongs to the user's program. Do not import a random.py from it, for example.
    sys.path.remove("")

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
from urllib.parse import unquote, urlsplit

INDEX = {"PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "PIP_EXTRA_INDEX_URL": ("UV_EXTRA_INDEX_URL",)}
"""For each variable of pip: the variables of uv whose value is used if pip's variable is not set."""

OPTIONS = (
    *("--no-input", "--no-cache-dir", "--progress-bar", "off", "--disable-pip-version-check"),
    "--no-warn-script-location",
)
THERE = "Requirement already satisfied"
"""The beginning of pip's lines about packages that the image already contains."""

MAY_PASS = re.compile(r"Retrying \(|timed out|Connection|Temporary failure|HTTP error 5|50\d Server|No space left")
"""Messages about an index that does not answer, or a full disk. Another try, perhaps on another node, may succeed."""

PASSWORD = re.compile(r"(?<=://)[^/\s]+(?=@)")
INCLUDED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
"""A line of a requirements file that includes another file."""
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""A variable such as `${NAME}`. pip replaces these in requirements files, but not in its arguments."""

SECRETS: list[str] = []
"""Passwords in the addresses of indexes, and values of variables in the arguments and in requirements files. They are
masked in the output, because pip may print them, whole or in pieces."""
LEAST_SECRET = 6
"""Values with fewer characters are not masked, because they may be parts of ordinary words."""

ENCODED = "/ as %2F, ? as %3F, # as %23, @ as %40"
"""How to write characters that end the part of an address in which a password stands."""

NO_PIP = "the image has no pip, ensurepip or uv; choose an image (--image) that has one of them, or has the packages"


def main(directory: str, words: list[str]) -> None:
    """Installs the packages that pip's arguments name. Writes a failure report and exits if this fails."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))  # Process 1 ignores SIGTERM by default.
    began, path, own = time.monotonic(), os.environ.pop("PYTHONPATH", ""), f"{directory}/site"
    if path and own not in path.split(os.pathsep):
        _fail(f"installing packages replaces the image's PYTHONPATH={path}; to keep it: --env PYTHONPATH={path}")
    _learn_secrets(words)
    _say(f"installing {' '.join(words)}")
    filled = [_filled_in(word) for word in words]
    python = _environment(Path(directory))
    _provide_pip(python)
    before = _installed(own)
    code, output = _pip(python, [*_torch_as_it_is(directory), *filled])
    if code:
        _fail(*_why(output))
    new = sorted(_installed(own) - before)
    what = ", ".join(f"{name} {version}" for name, version in new) or "nothing (the image has everything)"
    _say(f"installed {what} in {time.monotonic() - began:.1f} s")


def _filled_in(word: str) -> str:
    """Replaces the variables in a word by their values."""
    for name in VARIABLE.findall(word):
        if not os.environ.get(name):
            _fail(f"cannot install {word}: the variable {name} is not set")
        _learn(os.environ[name])
    return VARIABLE.sub(lambda found: os.environ[found[1]], word)


def _learn_secrets(words: list[str]) -> None:
    """Learns what must not be printed, and refuses addresses in which a password is not written as it must be."""
    for name, value in os.environ.items():
        if not name.startswith(("PIP_", "UV_")):
            continue
        for address in value.split():
            # A password may have a slash. Then the address is wrong, and pip quotes it whole.
            credentials, at, _ = address.partition("://")[2].rpartition("@")
            _learn(credentials.partition(":")[2] or credentials)
            if at and not _is_address(address):
                _fail(f"the password in {name} has a character that means something else there: write {ENCODED}")
    files = [Path(words[at + 1]) for at, word in enumerate(words[:-1]) if word in {"-r", "--requirement"}]
    for file in files:
        with suppress(OSError):  # pip will say so.
            text = file.read_text(encoding="utf-8", errors="replace")
            for name in VARIABLE.findall(text):
                _learn(os.environ.get(name, ""))
            found = [INCLUDED.match(line) for line in text.splitlines()]
            others = [file.parent / other[1] for other in found if other]
            files += [other for other in others if other not in files]  # The loop goes on with these.


def _is_address(text: str) -> bool:
    """Whether the port of an address is a number, and not the beginning of a password."""
    with suppress(ValueError):
        urlsplit(text).port  # noqa: B018  (the property raises the error)
        return True
    return False


def _learn(secret: str) -> None:
    """Masks a secret from now on, and its parts: pip splits addresses at these characters, and decodes them."""
    for text in (secret, unquote(secret)):
        SECRETS.extend(part for part in (text, *re.split("[/@:?#]", text)) if len(part) >= LEAST_SECRET)


def _environment(directory: Path) -> str:
    """Creates the virtual environment afresh, because a container may start twice. Returns the path of its Python."""
    venv.EnvBuilder(clear=True, symlinks=True).create(directory)
    own, searched = directory / "site", [path for path in sys.path if path and Path(path).is_dir()]
    (site,) = directory.glob("lib/python*/site-packages")
    own.symlink_to(site.relative_to(directory))
    (own / "image.pth").write_text("\n".join(searched), encoding="utf-8")
    return str(directory / "bin" / "python")


def _provide_pip(python: str) -> None:
    """Makes pip available: the image's own, or else the one in ensurepip, or else one that uv fetches."""
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
    """Arguments that make pip keep the image's version of torch, and choose other packages to fit that version."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return []
    file = Path(directory, "constraints.txt")
    file.write_text(f"torch=={version}\n", encoding="utf-8")
    return ["--constraint", str(file)]


def _pip(python: str, words: list[str]) -> tuple[int, list[str]]:
    """Runs `pip install` and prints its output; returns its exit code and output."""
    command = [python, "-m", "pip", "install", *OPTIONS, *words]
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert pip.stdout is not None
    output = []
    for line in pip.stdout:
        output.append(_masked(line.rstrip()))
        if not line.startswith(THERE):
            _say(output[-1])
    return pip.wait(), output


def _installed(own: str) -> set[tuple[str, str]]:
    """Names and versions of the packages in a directory."""
    return {(package.metadata["Name"], package.version) for package in metadata.distributions(path=[own])}


def _why(said: list[str]) -> tuple[str, str]:
    """The last error of pip as one line, and the cause to report: Application if another try may succeed."""
    errors: list[list[str]] = [[]]
    for line in said:
        if line.startswith("ERROR: ") and not line.startswith("ERROR: ResolutionImpossible"):
            errors.append([line[len("ERROR: ") :]])
        elif line.startswith(" ") and len(errors) > 1:
            errors[-1].append(line)
    error = " ".join(" ".join(errors[-1] or said[-1:]).split())
    kept = [line.split()[-1] for line in said if "(constraint) torch" in line]
    if kept:
        error += f" The image's {kept[-1]} is not replaced"
    warnings = [line for line in said if MAY_PASS.search(line)]
    if warnings:
        return f"cannot install packages: {error}: {warnings[-1][:300]}", "Application"
    return f"cannot install packages: {error}", "ConfigError"


def _fail(message: str, cause: str = "ConfigError") -> NoReturn:
    """Writes a failure report as a trainer does, and exits. After the cause ConfigError the job is not restarted."""
    report = json.dumps({"cause": cause, "message": _masked(message)[:500]})
    _say(f"error: {message}")
    with suppress(OSError):  # If the file cannot be written, the error is only in the log.
        Path(os.environ.get("DDPJOB_TERMINATION_LOG", "/dev/termination-log")).write_text(report, encoding="utf-8")
    sys.exit(2)


def _say(text: str) -> None:
    sys.stdout.write(f"{_masked(text)}\n")
    sys.stdout.flush()


def _masked(text: str) -> str:
    for secret in sorted(SECRETS, key=len, reverse=True):  # A secret may be the beginning of another secret.
        text = text.replace(secret, "****")
    return PASSWORD.sub("****", text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
