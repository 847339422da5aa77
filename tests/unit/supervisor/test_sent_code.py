"""Code that was sent to a held gang, as a node unpacks it: nobody else has looked into the archive."""

import hashlib
import io
import threading
import zipfile
import zlib
from pathlib import Path

import pytest
from ddpjob_supervisor.node.ranks import StartError
from ddpjob_supervisor.node.sent_code import SentCode

TEXT = b"print('here')\n" * 100


def packed(name: str = "train.py", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), TEXT, method)
    return buffer.getvalue()


def unpacked(code: SentCode, data: bytes) -> Path:
    code.receive(data)
    return code.unpacked(hashlib.sha256(data).hexdigest())


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
