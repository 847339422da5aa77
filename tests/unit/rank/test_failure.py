"""Failure reports: what a process that ends badly leaves behind."""

import dataclasses
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch
from ddpjob_rank.errors import ConfigError, DivergedError, PeerLostError, StorageError, StorageFullError
from ddpjob_rank.failure import full_storage
from ddpjob_rank.failure.failure_report import (
    REPORT_BYTES,
    Report,
    add_last_progress,
    clear,
    known_failure,
    read_report,
    report_of,
    report_path,
    write_final_status,
    write_report,
)

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [10.0.0.7]:4711"
OWN = Report(rank=1, exit_code=1, cause="Application", exception="ValueError", message="no", step=3)
CONSEQUENCE = Report(rank=0, exit_code=1, cause="PeerLost", exception="PeerLostError", message="lost", step=3)


class DistError(RuntimeError):
    """Named as the base of torch.distributed's errors."""


class DistNetworkError(DistError):
    pass


@pytest.mark.parametrize(
    ("error", "cause", "exit_code"),
    [
        (ValueError("shard 3 is empty"), "Application", 1),
        (ConfigError("no such workload"), "ConfigError", 2),
        (StorageFullError("no space"), "StorageFull", 2),
        (DivergedError("nan"), "Diverged", 1),
        (PeerLostError("lost a peer"), "PeerLost", 1),
    ],
)
def test_an_error_has_a_cause_and_an_exit_code(error: Exception, cause: str, exit_code: int) -> None:
    report = report_of(error, rank=2, step=7)
    assert (report.cause, report.exit_code) == (cause, exit_code)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError(GLOO), True),
        (RuntimeError("[gloo] Timed out waiting 1000ms for recv operation to complete"), True),
        (RuntimeError("NCCL error: remote process exited or there was a network error"), True),
        (DistNetworkError("The client socket has timed out"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ConnectionResetError("Connection reset by peer"), False),
        (ValueError("Connection closed by peer"), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_collective_that_fails_for_the_network_has_lost_a_peer(error: Exception, lost: bool) -> None:  # noqa: FBT001
    assert isinstance(known_failure(error), PeerLostError) is lost


def test_a_full_disk_is_known_wherever_the_program_writes() -> None:
    full = known_failure(OSError(28, "No space left on device", "/data/weights.pt"))
    assert isinstance(full, StorageFullError)
    assert str(full) == "No space left on device: /data/weights.pt"
    assert known_failure(OSError(5, "Input/output error", "/data/weights.pt")) is None


@pytest.mark.parametrize(
    ("words", "full"),
    [
        ("Error while serializing: I/O error: No space left on device (os error 28)", "No space left on device"),
        ("Error while serializing: I/O error: Disk quota exceeded (os error 122)", "Disk quota exceeded"),
        (
            "write failed: time = Sun Nov 29, errno = 28, error message = 'No space left on', buf",
            "No space left on device",
        ),
        ("Error while serializing: I/O error: Permission denied (os error 13)", None),
        # It means /dev/shm, whose size is the container's.
        ("unable to write to file </torch_71_3>: No space left on device (28)", None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_full_disk_is_known_by_the_error_number_in_other_libraries_messages(words: str, full: str | None) -> None:
    known = known_failure(RuntimeError(words))
    assert (None if known is None else str(known)) == full


def failed_save(file: object) -> RuntimeError:
    with pytest.raises(RuntimeError, match=r"iostream error|unexpected pos|failed writing file") as raised:
        torch.save(torch.zeros(100_000), file)
    return raised.value


@pytest.mark.parametrize("refused", ["open", "write", "flush", "sync"])
@pytest.mark.parametrize(
    ("number", "known"),
    [
        (28, (StorageFullError, "No space left on device: {}")),
        (122, (StorageFullError, "Disk quota exceeded: {}")),
        (
            5,
            (StorageError, "torch.save could not write {} completely: most likely the disk or a quota was full then"),
        ),
    ],
)
def test_a_full_disk_is_known_by_a_probe_when_torch_save_keeps_no_error_number(
    refused: str, number: int, known: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.pt"
    path.symlink_to("/dev/full")
    error, probe, refuses = failed_save(path), MagicMock(), {"side_effect": OSError(number, "")}
    probe.__enter__.return_value = probe
    for name in ("write", "flush"):
        getattr(probe, name).configure_mock(**(refuses if name == refused else {}))
    created = Mock(return_value=probe, **(refuses if refused == "open" else {}))
    monkeypatch.setattr(full_storage.tempfile, "TemporaryFile", created)
    monkeypatch.setattr(full_storage.os, "fsync", Mock(**(refuses if refused == "sync" else {})))
    found = known_failure(error)
    assert (type(found), str(found)) == (known[0], known[1].format(path))
    created.assert_called_once_with(dir=tmp_path)


def test_where_there_is_room_again_a_failed_save_is_an_error_of_the_storage(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.symlink_to("/dev/full")
    known = known_failure(failed_save(path))
    assert type(known) is StorageError
    assert [*tmp_path.iterdir()] == [path]


def test_a_save_into_a_file_of_the_programs_own_has_no_path_to_probe() -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "")

    error = RuntimeError("iostream error")
    with pytest.raises((RuntimeError, OSError)) as raised:
        torch.save(torch.zeros(8), Full())
    assert known_failure(error.with_traceback(raised.tb)) is None


def test_a_report_is_one_json_object_with_the_last_line_of_the_error(tmp_path: Path) -> None:
    write_report(report_of(ValueError("while reading\n  shard 3 is empty\n\n"), rank=2, step=7), tmp_path / "log")
    written = json.loads((tmp_path / "log").read_text())
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o644, "others read it"
    assert datetime.fromisoformat(written.pop("time")).tzinfo == UTC
    assert written == {
        "version": 2,
        "rank": 2,
        "exitCode": 1,
        "exception": "ValueError",
        "message": "shard 3 is empty",
        "step": 7,
        "attempt": None,
        "cause": "Application",
    }


CUDA = """CUDA error: unspecified launch failure
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""  # noqa: E501  (its words)
"""As PyTorch's c10/cuda/CUDAException.cpp words it."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CUDA, "CUDA error: unspecified launch failure"),
        (
            "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\nframe #0: c10::Error",
            "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        ),
        ("CUDA out of memory. Tried to allocate 2 GiB", "CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)
def test_of_an_error_of_cudas_the_first_line_is_told_and_not_the_advice(text: str, message: str) -> None:
    assert report_of(RuntimeError(text), 0, None).message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(sqlite3.OperationalError) no such table: runs\n(Background on this error at: https://sqlalche.me/e/20/e)",
            "(sqlite3.OperationalError) no such table: runs",
        ),
        (
            "1 validation error for Options\nlr\n    For further information visit https://errors.pydantic.dev/2/v/float",
            "1 validation error for Options",
        ),
        ("cannot reach https://hub.example/model", "cannot reach https://hub.example/model"),
        ("while loading:\nhttps://hub.example/model does not answer", "https://hub.example/model does not answer"),
    ],
)
def test_a_last_line_that_only_refers_to_a_page_is_no_reason(text: str, message: str) -> None:
    assert report_of(RuntimeError(text), 0, None).message == message


@pytest.mark.parametrize(
    ("said", "waited"),
    [
        ("Timed out waiting 20000ms for recv operation to complete", True),
        ("Connection closed by peer [127.0.0.1]:7", False),
    ],
)
def test_a_report_tells_a_peer_that_did_not_come_in_time_from_one_that_is_gone(said: str, *, waited: bool) -> None:
    lost = known_failure(RuntimeError(f"[/__w/gloo/transport/tcp/unbound_buffer.cc:78] {said}"))
    assert lost is not None
    assert json.loads(report_of(lost, 1, None).to_json()).get("waited", False) is waited


def test_the_place_in_gloos_source_is_left_out() -> None:
    assert report_of(RuntimeError(GLOO), 0, None).message == "Connection closed by peer [10.0.0.7]:4711"


def test_a_report_fits_into_a_termination_message_whatever_the_error_says(tmp_path: Path) -> None:
    error = type("E" * 5000, (Exception,), {})('"\\€' * 5000)
    write_report(report_of(error, rank=2, step=None), tmp_path / "log")
    assert (tmp_path / "log").stat().st_size <= 4096
    assert len(json.loads((tmp_path / "log").read_text())["message"].encode()) <= 512


@pytest.mark.parametrize(
    ("first", "second", "stays"),
    [(OWN, CONSEQUENCE, OWN), (CONSEQUENCE, OWN, OWN), (OWN, Report(0, 2, "ConfigError", None, "x", None), OWN)],
    ids=["a consequence comes later", "a consequence comes first", "two failures of their own"],
)
def test_processes_that_share_a_file_leave_the_failure_that_explains(
    tmp_path: Path, first: Report, second: Report, stays: Report
) -> None:
    write_report(first, tmp_path / "log")
    write_report(second, tmp_path / "log")
    assert json.loads((tmp_path / "log").read_text())["cause"] == stays.cause


def test_an_earlier_runs_report_is_cleared_and_its_rest_does_not_show(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"cause": "Application"' + " " * 1000 + "}")
    clear(tmp_path / "log")
    write_report(CONSEQUENCE, tmp_path / "log")
    assert json.loads((tmp_path / "log").read_text())["cause"] == "PeerLost"


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(OWN, tmp_path / "missing" / "log")
    assert capsys.readouterr().err.startswith(f"warning: cannot write the failure report to {tmp_path}/missing/log:")


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    assert report_path({"DDPJOB_TERMINATION_LOG": str(tmp_path)}) == tmp_path


def test_last_words_tell_how_far_training_came_unless_the_file_tells_of_a_failure(tmp_path: Path) -> None:
    left = {"version": 2, "progress": {"step": 400}, "checkpoint": None}
    status = {**left, "phase": "Done"}
    write_final_status(status, tmp_path / "empty", {})
    assert json.loads((tmp_path / "empty").read_text()) == left
    write_report(OWN, tmp_path / "failed")
    write_final_status(status, tmp_path / "failed", {})
    assert json.loads((tmp_path / "failed").read_text())["exception"] == "ValueError"
    (tmp_path / "noted").write_text("a word of the program's own" * 100)
    for name in ("failed", "noted"):
        write_final_status(status, tmp_path / name, {"result": None})
        assert json.loads((tmp_path / name).read_text()) == {**left, "result": None}


def test_a_failure_report_gets_the_last_progress_if_there_is_room_for_it(tmp_path: Path) -> None:
    file = tmp_path / "log"
    status = {"version": 2, "progress": {"step": 400}, "checkpoint": None, "phase": "Stopping"}
    add_last_progress(status, file)
    assert not file.exists(), "there is no failure"
    write_report(OWN, file)
    alone = json.loads(file.read_text())
    add_last_progress(status, file)
    assert json.loads(file.read_text()) == {**alone, "progress": {"step": 400}, "checkpoint": None}
    add_last_progress({**status, "progress": {"activity": "x" * REPORT_BYTES}}, file)
    assert json.loads(file.read_text())["progress"] == {"step": 400}
    add_last_progress(status, None)


@pytest.mark.parametrize("letter", ["\x1b", '"', "é", "\x7f", "\t"])
def test_a_report_of_any_letters_fits_into_a_termination_message(letter: str, tmp_path: Path) -> None:
    kind = type("E" + letter * 300, (Exception,), {})
    write_report(
        dataclasses.replace(report_of(kind(letter * 600), 1, 3), incident={"a": "b" * 500}), tmp_path / "log"
    )
    assert read_report(tmp_path / "log") is not None


@pytest.mark.parametrize("content", ["a word", "[" * 4000, '{"a": 1}' + " " * REPORT_BYTES, "[1]", "\udcff"])
def test_what_the_program_has_written_itself_is_no_failure_report(content: str, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(content, errors="surrogateescape")
    add_last_progress({"version": 2, "progress": {}, "checkpoint": None}, file)
    assert file.read_text(errors="surrogateescape") == content
    write_report(OWN, file)
    assert json.loads(file.read_text())["exception"] == "ValueError"


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("\nint('x')", "train.py:2"),
        ("\nx = (", "train.py:2"),
        ("import json\njson.loads('{')", "train.py:2"),
        ("import helped\nhelped.fails()", "train.py:2"),
        ("import ast\nast.literal_eval('1 +')", "train.py:2"),
        ("\nraise SyntaxError('x', (7, 3, 0, ''))", "train.py:2"),
    ],
    ids=["own", "cannot be parsed", "in a library", "in a package of --pip", "text of another kind", "strange"],
)
def test_the_line_is_that_of_the_program_and_not_of_a_package_or_of_a_text_that_was_read(
    program: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "site").symlink_to(packages)
    (packages / "helped.py").write_text("def fails():\n    int('x')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises((ValueError, SyntaxError)) as raised:
        exec(compile(program, tmp_path / "train.py", "exec"), {})
    error = raised.value.with_traceback(raised.tb.tb_next)
    assert report_of(error, 0, None).line == line
