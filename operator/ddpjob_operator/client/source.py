"""Finds the files of a program in a folder, except secrets, files that git ignores, and links out of the folder."""

import codecs
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import option
from ddpjob_operator.api.secrecy import names_secrets, suspicions

from .archive import IN_A_CONFIG_MAP, NAMED, File, Limit, too_large

MOST_FILES = 5000

SHOWN = 5
"""The error lists at most this many of the places that seem to hold a secret."""
BEGINNING = 8192
"""A file counts as binary if there is a zero byte among this many bytes at its beginning."""

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

GITIGNORE = ".gitignore"
EXCLUDE = "info/exclude"
MOST_STARS = 4
"""The most stars that a pattern may have between two slashes: with n stars, the time to match a name grows with the
n-th power of its length."""
REPOSITORY = ".git"

USELESS = GitIgnoreSpec.from_lines(
    """\
.git
.gitattributes
.gitignore
.hg
.svn
.venv/
venv/
node_modules/
__pycache__/
*.pyc
.mypy_cache/
.pytest_cache/
.ruff_cache/
.ipynb_checkpoints/
.tox/
.nox/
.DS_Store
ddpjob-runs/
""".splitlines()
)
"""Files that are never sent, because no program needs them in its pod."""

VENV_MARK = "pyvenv.cfg"
SUSPECT = "may hold secrets"
"""The reason for leaving out a file whose name suggests a secret."""


@dataclass
class Source:
    """The files of a program that are sent, and the files of its folder that are left out."""

    files: list[File] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Why each file is left out, by its path. Files that git ignores or that no program needs are not listed."""


def read_file(path: Path, include: Collection[Path] = ()) -> Source:
    """Reads a program that is one file. A file in `include` is not searched for secrets.

    Raises:
        BadInputError: the file cannot be read, or seems to hold a secret.
    """
    file = _read(path, path.name)
    if path.resolve() not in {included.resolve() for included in include}:
        check_holds_no_secret({path: file})
    return Source([file])


def read_folder(folder: Path, include: Collection[Path] = (), limit: Limit = IN_A_CONFIG_MAP) -> Source:
    """Reads the program in a folder. Files in `include` are sent whatever their names and contents.

    Raises:
        BadInputError: the folder does not exist, is too large to send with a job or cannot be read, a file to include
            is not in the folder, or another file seems to hold a secret.
    """
    source = Source()
    found, included = _found(folder, include, source.left_out)
    sizes = {name: _size(path) for name, path in found.items()}
    if sum(sizes.values()) > limit.unpacked:
        raise too_large(sizes, "unpacked", limit.unpacked, limit)
    files = {name: _read(path, name) for name, path in found.items()}
    check_holds_no_secret({folder / name: file for name, file in files.items() if name not in included})
    source.files.extend(files.values())
    if not source.files:
        raise BadInputError(
            f"{folder} has no file to send: it is empty, or all its files are ignored or may hold secrets"
        )
    return source


def fullest_folders(names: Collection[str]) -> str:
    """Which folders have most of these files, as the end of a sentence; empty if none is in a folder."""
    counts = Counter(f"{name.partition('/')[0]}/" for name in names if "/" in name)
    most = ", ".join(f"{name} ({count})" for name, count in counts.most_common(NAMED))
    return f"; of the first {len(names)}, most are in: {most}" if most else ""


def _found(
    folder: Path, include: Collection[Path], left_out: dict[str, str]
) -> tuple[dict[str, Path], Collection[str]]:
    """The files of a folder that are sent, by name, and the names of those that are sent in any case.

    Records in `left_out` why other files are not sent.
    """
    if not folder.is_dir():
        raise BadInputError(f"{option('source', folder)}: there is no such folder")
    root = folder.resolve()
    included = {_included(path, folder): path.resolve() for path in include}
    found = dict(included)
    for path in _walk(root, _specs_above(root), root, left_out):
        found[path.relative_to(root).as_posix()] = path
        if len(found) > MOST_FILES:
            raise BadInputError(
                f"{folder} has more than {MOST_FILES} files{fullest_folders(found)}. Name a folder with only the"
                f" program ({option('source')}), or exclude in .gitignore what the program does not need"
            )
    for name in included:
        left_out.pop(name, None)
    return found, included.keys()


Stamps = dict[str, tuple[int, int, int]]
"""Of each file, by name: what changes when it is saved."""


def stamps(folder: Path, include: Collection[Path] = ()) -> Stamps:
    """The stamps of the files in a folder that are sent.

    Raises:
        BadInputError: as in `read_folder`.
    """
    found, _ = _found(folder, include, {})
    return {name: stamp(path) for name, path in found.items()}


def stamp(path: Path) -> tuple[int, int, int]:
    """The stamp of a file; that of a file that does not exist differs from that of any other one.

    Example:
        before = stamp(Path("train.py"))
        ...
        if stamp(Path("train.py")) != before: print("it was saved")
    """
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


def _included(path: Path, folder: Path) -> str:
    """The path of a file to include, relative to the folder."""
    try:
        name = path.resolve(strict=True).relative_to(folder.resolve()).as_posix()
    except FileNotFoundError:
        raise BadInputError(f"{option('include', path)}: there is no such file") from None
    except ValueError:
        raise BadInputError(
            f"{option('include', path)}: it is not in the {option('source')} folder {folder}"
        ) from None
    if not path.is_file():
        raise BadInputError(f"{option('include', path)}: it is not a file; name each file to send")
    return name


def check_holds_no_secret(files: dict[Path, File]) -> None:
    """Raises an error that names each line that seems to hold a secret, but does not quote the secret.

    Files with secrets are not silently left out, because the program may need them.
    """
    suspects = [(path, line, kind) for path, file in files.items() for line, kind in _suspicions(file)]
    if not suspects:
        return
    more = f"\n  and {len(suspects) - SHOWN} more places" if len(suspects) > SHOWN else ""
    first, *_ = suspects[0]
    raise BadInputError(
        "everyone who may read ConfigMaps can read what is sent, and this looks secret:"
        + "".join(f"\n  {path}, line {line}: {kind}" for path, line, kind in suspects[:SHOWN])
        + f"{more}\nPut it into a Secret, or exclude the file in .gitignore; to send it anyway:"
        f" {option('include', first)}"
    )


def _suspicions(file: File) -> Iterator[tuple[int, str]]:
    """The lines of a text file that seem to hold a secret; packed and compiled files are not searched."""
    encoding = "utf-16" if file.content.startswith(UTF_16) else "utf-8"
    if encoding == "utf-16" or b"\0" not in file.content[:BEGINNING]:
        yield from sorted(set(suspicions(file.content.decode(encoding, "replace"), file.name)))


Specs = tuple[tuple[Path, GitIgnoreSpec], ...]
"""Lists of ignore patterns, each with the directory to which its patterns are relative, the outermost first."""


def _walk(directory: Path, specs: Specs, root: Path, left_out: dict[str, str]) -> Iterator[Path]:
    """Yields the files to send, and records in `left_out` why other files are not sent."""
    specs = (*specs, *_spec_of(directory))
    with _readable(directory):
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    for entry in entries:
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if _matches(USELESS, path, root, is_folder=is_folder) or _is_ignored(path, specs, is_folder=is_folder):
            continue
        if not entry.name.isprintable():  # A name that is not UTF-8 is not printable either.
            raise BadInputError(f"{directory} has a file with an unprintable name, {entry.name!a}; rename it")
        if reason := _why_not(path, root, is_folder=is_folder):
            left_out[path.relative_to(root).as_posix()] = reason
        elif is_folder:
            yield from _walk(path, specs, root, left_out)
        else:
            yield path


def _why_not(path: Path, root: Path, *, is_folder: bool) -> str:
    """Why a file or folder that git does not ignore is not sent; empty if it is sent."""
    if names_secrets(path.relative_to(root).as_posix(), is_folder=is_folder):
        return SUSPECT
    if is_folder:
        return "a virtual environment" if (path / VENV_MARK).exists() else ""
    target = _resolved(path)
    if not target.is_relative_to(root):
        return "a link that leads out of the folder"
    if path.is_symlink() and (target.is_dir() or not target.exists()):
        return "a link that leads to no file"
    name = target.relative_to(root).as_posix()
    if names_secrets(name) or _matches(USELESS, target, root, is_folder=False):
        return "a link to a file that is not sent"
    return "" if target.is_file() else "not a regular file"


def _specs_above(root: Path) -> Specs:
    """The ignore patterns from outside a folder: the user's, the repository's, and the .gitignore files above it."""
    above = [root, *root.parents]
    repository = next((place for place in above if (place / REPOSITORY).exists()), root)
    between = [place for place in reversed(root.parents) if place.is_relative_to(repository)]
    users = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
    return (
        *_spec(repository, users),
        *_spec(repository, repository / REPOSITORY / EXCLUDE),
        *(spec for place in between for spec in _spec_of(place)),
    )


def _spec_of(directory: Path) -> Specs:
    return _spec(directory, directory / GITIGNORE)


def _spec(place: Path, file: Path) -> Specs:
    """The ignore patterns in `file`, which apply relative to the folder `place`; none if the file does not exist."""
    if not file.is_file():
        return ()
    try:
        lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        if slow := next((line for line in lines if _stars(line) > MOST_STARS), None):
            raise ValueError(f"{slow!r} has more than {MOST_STARS} stars in a name")  # noqa: TRY301
        return ((place, GitIgnoreSpec.from_lines(lines)),)
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot read {file}: {error}") from None


def _stars(line: str) -> int:
    """The largest number of groups of stars in one name of a pattern; 0 for a comment."""
    return 0 if line.startswith("#") else max(len(re.findall(r"\*+", name)) for name in line.split("/"))


def _is_ignored(path: Path, specs: Specs, *, is_folder: bool) -> bool:
    """Whether git ignores a path: the last pattern that matches decides, in the innermost .gitignore with a match."""
    for place, spec in reversed(specs):
        decision = spec.check_file(_named(path, place, is_folder=is_folder)).include
        if decision is not None:
            return decision
    return False


def _matches(spec: GitIgnoreSpec, path: Path, root: Path, *, is_folder: bool) -> bool:
    """Whether the patterns match a path or one of its parent folders."""
    return spec.match_file(_named(path, root, is_folder=is_folder))


def _named(path: Path, place: Path, *, is_folder: bool) -> str:
    return path.relative_to(place).as_posix() + "/" * is_folder


def _read(path: Path, name: str) -> File:
    with _readable(path):
        return File(name, path.read_bytes(), executable=os.access(path, os.X_OK))


def _size(path: Path) -> int:
    with _readable(path):  # It may have been removed since it was found.
        return path.stat().st_size


def _resolved(path: Path) -> Path:
    """Where a path leads; the path itself if it leads nowhere, because its links lead to each other."""
    try:
        return path.resolve()
    except RuntimeError:  # Before Python 3.13.
        return path


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises BadInputError if the block cannot read this file or folder."""
    try:
        yield
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from None
