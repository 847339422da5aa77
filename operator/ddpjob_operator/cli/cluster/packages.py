"""Checks --pip and --requirements, which name packages to install; the requirements file is sent with the code."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import option
from ddpjob_operator.client.archive import File
from ddpjob_operator.client.source import Source, read_file

REQUIREMENT = re.compile(
    r"[A-Za-z0-9][^\s/\\]*(\s.*)?|[A-Za-z0-9+]+://\S+(\s.*)?|\S+\s*@\s*[A-Za-z0-9+]+://\S+(\s.*)?"
)
"""A package name with extras or versions, or a URL. Paths do not match, because they name files on this machine."""
PASSWORD = re.compile(
    r"https?://(?!(?:[^/@\s:]+:)?\$\{[A-Z0-9_]+\}@)(?:[^/@\s]+@|[^/@\s:[]{1,64}:(?!\d+(?:[/?#;\s]|$))[^\s@]{0,256}@)"
)
"""A URL with a password, unless the password is a variable that pip replaces: `${NAME}`, in capital letters. What
stands in place of a port, and is no number, is a password with a slash."""
ELSEWHERE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
"""A line of a requirements file that includes another file."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that pods need besides those of their image."""

    names: tuple[str, ...] = ()
    """As pip takes them."""
    file: str = ""
    """The name of the requirements file among the files that are sent; empty if there is none."""

    def arguments(self, folder: str) -> tuple[str, ...]:
        """The arguments of pip, if the files that are sent are in this folder; none if there are no packages."""
        return (*self.names, *(("--requirement", f"{folder}/{self.file}") if self.file else ()))


def with_packages(given: argparse.Namespace, source: Source | None) -> tuple[Source | None, Packages]:
    """The source to send, with the requirements file added, and the packages that the arguments name.

    Raises:
        BadInputError: a requirement is malformed, or the file does not exist, is not sent, or contains a password.
    """
    for text in given.pip:
        _check(text)
    if given.requirements is None:
        return source, Packages((*given.pip,))
    if given.source is None:
        file = _alone(given.requirements, given.include)
        source = Source([*(source.files if source else ()), file], source.left_out if source else {})
    else:
        assert source is not None, "it is the folder"
        file = _travelling(given.requirements, given.source, source)
    _check_password(file.content.decode(errors="replace"), option("requirements", given.requirements))
    return source, Packages((*given.pip,), file.name)


def within(file: Path, folder: Path) -> str:
    """The path of a file relative to a folder.

    Raises:
        BadInputError: the file is not in the folder.
    """
    try:
        return file.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise BadInputError(
            f"{file} is not in the {option('source')} folder {folder}; name a folder that contains it"
        ) from None


def _check(text: str) -> None:
    _check_password(text, option("pip"))  # First, because the messages below quote `text`.
    if text.startswith("-"):
        raise BadInputError(
            f"{option('pip', text)}: put pip's options into a file, and name it with {option('requirements')}"
        )
    if not REQUIREMENT.fullmatch(text):
        raise BadInputError(
            f"{option('pip', text)}: must be a package as pip takes it, such as 'einops>=0.8', not a path on this"
            " machine"
        )


def _check_password(text: str, what: str) -> None:
    """Refuses URLs with passwords, because everyone who may read jobs and ConfigMaps could read the passwords.

    Raises:
        BadInputError: `text` contains a URL with a password; `what` is the origin of `text`, for the message.
    """
    if PASSWORD.search(text):
        raise BadInputError(
            f"{what} has an address with a password; write ${{NAME}} in its place, and set that variable in the pods"
        )


def _alone(path: Path, include: list[Path]) -> File:
    (file,) = read_file(path, include).files
    for line in file.content.decode(errors="replace").splitlines():
        if other := ELSEWHERE.match(line):
            raise BadInputError(
                f"{path} names {other[1]}, which would not be sent; to send the folder:"
                f" {option('source', path.parent)}"
            )
    return file


def _travelling(path: Path, folder: Path, source: Source) -> File:
    name = within(path, folder)
    found = next((file for file in source.files if file.name == name), None)
    if found is None:
        why = (
            "there is no such file"
            if not path.is_file()
            else "it would not be sent: .gitignore excludes it, or it may hold secrets; to send it anyway:"
            f" {option('include', path)}"
        )
        raise BadInputError(f"{option('requirements', path)}: {why}")
    return found
