"""Packages that a program needs and the image may lack: those that its user names, and the file that is sent."""

import argparse
import re
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.client.archive import File
from ddpjob_operator.client.source import Source, read_file

from .pod_options import CODE_DIRECTORY

REQUIREMENT = re.compile(
    r"[A-Za-z0-9][^\s/\\]*(\s.*)?|[A-Za-z0-9+]+://\S+(\s.*)?|\S+\s*@\s*[A-Za-z0-9+]+://\S+(\s.*)?"
)
"""A name with what may follow it, or an address; a path would be one on this machine."""
PASSWORD = re.compile(r"https?://(?!(?:[^/@\s:]+:)?\$\{[A-Z0-9_]+\}@)[^/@\s]+@")
"""In an address, unless a variable stands for it, as pip takes one: in capital letters."""
ELSEWHERE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
"""A line of a requirements file that names another file."""


def with_packages(given: argparse.Namespace, source: Source | None) -> tuple[Source | None, tuple[str, ...]]:
    """What is sent, with the requirements file, and what pip should install; nothing without any.

    Raises:
        BadInputError: a requirement is not one, or the file does not exist, is not sent, or contains a password.
    """
    for text in given.pip:
        _check(text)
    if given.requirements is None:
        return source, (*given.pip,)
    if given.source is None:
        file = _alone(given.requirements, given.include)
        source = Source([*(source.files if source else ()), file], source.left_out if source else {})
    else:
        assert source is not None, "it is the folder"
        file = _travelling(given.requirements, given.source, source)
    _check_password(file.content.decode(errors="replace"), f"--requirements {given.requirements}")
    return source, (*given.pip, "--requirement", f"{CODE_DIRECTORY}/{file.name}")


def within(file: Path, folder: Path) -> str:
    """Where a file is in a folder.

    Raises:
        BadInputError: elsewhere.
    """
    try:
        return file.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise BadInputError(
            f"{file} is not in the --source folder {folder}; name a folder that contains it"
        ) from None


def _check(text: str) -> None:
    _check_password(text, "--pip")  # First: what follows says the text.
    if text.startswith("-"):
        raise BadInputError(f"--pip {text}: put pip's options into a file, and name it with --requirements")
    if not REQUIREMENT.fullmatch(text):
        raise BadInputError(
            f"--pip {text}: must be a package as pip takes it, such as 'einops>=0.8', not a path on this machine"
        )


def _check_password(text: str, what: str) -> None:
    """Anyone who may read jobs and ConfigMaps could read it."""
    if PASSWORD.search(text):
        raise BadInputError(
            f"{what} has an address with a password; write ${{NAME}} in its place, and set that variable in the pods"
        )


def _alone(path: Path, include: list[Path]) -> File:
    (file,) = read_file(path, include).files
    for line in file.content.decode(errors="replace").splitlines():
        if other := ELSEWHERE.match(line):
            raise BadInputError(
                f"{path} names {other[1]}, which would not be sent; to send the folder: --source {path.parent}"
            )
    return file


def _travelling(path: Path, folder: Path, source: Source) -> File:
    name = within(path, folder)
    found = next((file for file in source.files if file.name == name), None)
    if found is None:
        why = (
            "there is no such file"
            if not path.is_file()
            else "it would not be sent: .gitignore excludes it, or it may hold secrets; --include sends it anyway"
        )
        raise BadInputError(f"--requirements {path}: {why}")
    return found
