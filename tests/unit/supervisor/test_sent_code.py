"""Code that was sent to a gang, as a node keeps, passes on and unpacks it: nobody else has looked into it."""

import hashlib
import io
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_supervisor.node import sent_code
from ddpjob_supervisor.node.ranks import StartError
from ddpjob_supervisor.node.sent_code import SentCode

TEXT = b"print('here')\n" * 100


def packed(name: str = "train.py", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), TEXT, method)
    return buffer.getvalue()


def of(**files: str) -> bytes:
    """An archive of these files; two underscores in a name are a slash, and its `.py` is left out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"{name.replace('__', '/')}.py"), text)
    return buffer.getvalue()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def take(code: SentCode, data: bytes) -> str:
    """Takes in an archive, and returns its digest."""
    digest = digest_of(data)
    arriving = code.receive(digest)
    for begin in range(0, len(data), 100):
        arriving.add(data[begin : begin + 100])
    arriving.finish()
    return digest


def unpacked(code: SentCode, data: bytes) -> Path:
    return code.unpacked(take(code, data))


def there(directory: Path) -> dict[str, str]:
    """The files of a directory, with their contents."""
    return {
        path.relative_to(directory).as_posix(): path.read_text() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture
def placed(tmp_path: Path) -> Iterator[tuple[SentCode, Path]]:
    """A pod that was made with some code, and the directory with its files."""
    archive, directory = tmp_path / "code.zip", tmp_path / "code"
    archive.write_bytes(of(train="old", lib__a="a", lib__deep__b="b", alone__c="c"))
    zipfile.ZipFile(archive).extractall(directory)
    with SentCode(archive) as code:
        yield code, directory


def test_new_code_takes_the_place_of_the_old_code_and_what_the_program_has_written_stays(
    placed: tuple[SentCode, Path],
) -> None:
    code, directory = placed
    (directory / "lib" / "__pycache__").mkdir()
    (directory / "lib" / "__pycache__" / "a.pyc").write_text("bytecode of the old file")
    (directory / "model.pt").write_text("written by a rank")
    code.place(take(code, of(train="new", lib__d="d")), directory)
    assert there(directory) == {"train.py": "new", "lib/d.py": "d", "model.pt": "written by a rank"}
    assert not (directory / "alone").exists(), "an empty folder can still be imported"
    code.place(code.mounted_digest, directory)
    assert there(directory).keys() == {"train.py", "lib/a.py", "lib/deep/b.py", "alone/c.py", "model.pt"}


def test_code_that_is_there_is_left_alone(placed: tuple[SentCode, Path]) -> None:
    code, directory = placed
    before = (directory / "train.py").stat().st_ino
    code.place(code.mounted_digest, directory)
    assert (directory / "train.py").stat().st_ino == before


def test_code_that_cannot_be_unpacked_leaves_the_former_files(placed: tuple[SentCode, Path]) -> None:
    code, directory = placed
    before = there(directory)
    digest = take(code, packed()[:-10])
    with pytest.raises(StartError, match="cannot unpack the code that was sent"):
        code.place(digest, directory)
    assert there(directory) == before
    assert not [*directory.glob(".*")]


def test_an_archive_is_passed_on_in_pieces(monkeypatch: pytest.MonkeyPatch, placed: tuple[SentCode, Path]) -> None:
    monkeypatch.setattr(sent_code, "PIECE_BYTES", 7)
    here, data = placed[0], placed[0]._mounted.read_bytes()  # type: ignore[union-attr]
    with SentCode() as other:
        arriving = other.receive(here.mounted_digest)
        while piece := here.piece(here.mounted_digest, arriving.size):
            assert len(piece) <= 7
            arriving.add(piece)
        assert not other.has(here.mounted_digest), "nobody runs half of it"
        arriving.finish()
        assert other.piece(here.mounted_digest, 0) == data[:7]
        assert other.piece(digest_of(b"another"), 0) is None


def test_new_code_takes_the_place_of_all_but_what_nodes_may_still_ask_for(placed: tuple[SentCode, Path]) -> None:
    code = placed[0]
    former, runs = take(code, of(former="")), take(code, of(runs=""))
    assert (code.has(former), code.has(runs)) == (False, True)
    arriving = code.receive(digest_of(b"new"), [runs])
    arriving.add(b"new")
    arriving.finish()
    assert [code.has(digest) for digest in (code.placed, runs, digest_of(b"new"))] == [True] * 3


def test_what_is_not_what_was_announced_or_too_large_is_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with SentCode() as code:
        arriving = code.receive(digest_of(b"this"))
        arriving.add(b"that")
        with pytest.raises(ValueError, match="is not the code that was announced"):
            arriving.finish()
        assert not code.has(digest_of(b"this"))
        with pytest.raises(ValueError, match="not a SHA-256"):
            code.receive("../../etc/passwd")
        assert not code.has("../../etc/passwd")
        monkeypatch.setattr(sent_code, "MOST_PACKED", 3)
        with pytest.raises(ValueError, match="more than 3 bytes"):
            code.receive(digest_of(b"long")).add(b"long")


def with_a_broken_stream() -> bytes:
    data = packed()
    stream = zlib.compress(TEXT)[2:-4]  # Without the header and the checksum of zlib, as in an archive.
    assert stream in data
    return data.replace(stream, b"\xff" * len(stream))


def with_a_short_file() -> bytes:
    """The directory at the end promises more than there is."""
    data = bytearray(packed(method=zipfile.ZIP_STORED))
    sizes = data.index(b"PK\x01\x02") + 20
    data[sizes : sizes + 8] = 2 * (1 << 20).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", packed()[:-10], with_a_broken_stream(), with_a_short_file(), packed("")],
    ids=["nothing", "no archive", "cut off", "a broken stream", "a short file", "a file without a name"],
)
def test_an_archive_that_cannot_be_unpacked_ends_the_run_and_not_the_supervisor(data: bytes) -> None:
    with SentCode() as code:
        with pytest.raises(StartError, match=r"^cannot unpack the code that was sent: ."):
            unpacked(code, data)
        assert (unpacked(code, packed()) / "train.py").read_bytes() == TEXT, "the next run is not affected"


def test_two_attempts_do_not_unpack_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, found = threading.Event(), threading.Event(), list[Path]()
    chmod = Path.chmod

    def slow(path: Path, mode: int) -> None:
        begun.set()
        goes_on.wait()
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", slow)
    with SentCode() as code:
        attempts = [threading.Thread(target=lambda: found.append(unpacked(code, packed()))) for _ in range(2)]
        for attempt in attempts:
            attempt.start()
            begun.wait()
        goes_on.set()
        for attempt in attempts:
            attempt.join()
        assert [(directory / "train.py").read_bytes() for directory in found] == [TEXT, TEXT]
