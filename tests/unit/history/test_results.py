"""A result that the status cannot hold is kept in the history, and read from there when the pods are gone."""

import asyncio
import errno
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddpjob.checkpoint.store_client import StoreError
from ddpjob_operator.api import BadInputError, DDPJob, DDPJobSpec, RestartAction
from ddpjob_operator.engine.incidents.judgement import DEFAULTS
from ddpjob_operator.engine.reports import PLACES
from ddpjob_operator.history import Retention, Stock, kept_jobs, open_place
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.sdk.results import result_of
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_rank.reporting.result import LARGEST_BYTES, result_file
from ddpjob_supervisor.history.history import NodeHistory, recorded
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import DirectoryTarget
from ddpjob_supervisor.page import kept_result as module
from ddpjob_supervisor.page.kept_result import kept_result

UID = "0a1b2c3d"
LARGE = {"curve": ["größer"] * 1000, "ends": None}


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Leaves a result as rank 0, and gives what the supervisor says of it at the end."""

    def keep(content: bytes | None, *, history: bool = True, grace: float = 30) -> dict[str, Any]:
        heartbeat, place = tmp_path / "beat", tmp_path / "history"
        if content is not None:
            result_file(heartbeat, 2).write_bytes(content)
        writer = HistoryWriter("team", "train", UID, 0, 1, 1)
        journal = Journal(str(place), writer, SecretValues({}), 2, lambda: DirectoryTarget(place, writer))
        try:
            return asyncio.run(kept_result(heartbeat, 2, NodeHistory(journal if history else None), grace))
        finally:
            journal.end("succeeded")
            journal.close(30)

    return keep


def a_job(history: Path, status: dict[str, Any], uid: str = UID) -> DDPJob:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    return DDPJob.from_dict(
        {
            "apiVersion": "ddpjob.dev/v1alpha2",
            "kind": "DDPJob",
            "metadata": {"name": "train", "namespace": "team", "uid": uid},
            "spec": {"history": {"path": str(history)}, "template": template},
            "status": status,
        }
    )


def test_a_small_result_goes_into_the_status(kept: Any, tmp_path: Path) -> None:
    assert kept(b'{"a":1}') == {"result": {"a": 1}}
    assert not [*tmp_path.rglob("result-*.jsonl")]
    assert result_of(a_job(tmp_path, {"result": '{"a":1}'})) == {"a": 1}


@pytest.mark.parametrize("content", [None, b"", b"{", b"[" * 100_000, b"NaN", b'["\\ud800"]', b'{"\\ud800":1}'])
def test_what_is_no_result_is_none(content: bytes | None, kept: Any) -> None:
    assert kept(content) == {}


def test_a_larger_one_goes_into_the_history_and_is_read_from_there(kept: Any, tmp_path: Path) -> None:
    said = kept(json.dumps(LARGE).encode())
    assert said.keys() == {"resultPlace"}
    assert PLACES.fullmatch(said["resultPlace"])
    assert result_of(a_job(tmp_path / "history", said)) == LARGE


def test_the_largest_is_read_whole(kept: Any, tmp_path: Path) -> None:
    said = kept(json.dumps("x" * (LARGEST_BYTES - 2)).encode())
    assert len(result_of(a_job(tmp_path / "history", said))) == LARGEST_BYTES - 2


def test_a_later_process_knows_it_as_a_file_of_this_node(kept: Any, tmp_path: Path) -> None:
    """Of many processes of a node, only the first and the newest keep their folders."""
    folder, name = kept(json.dumps(LARGE).encode())["resultPlace"].split("/")[-2:]
    (file,) = tmp_path.rglob(name)
    writer = HistoryWriter("team", "train", UID, 0, 2, 1)
    assert writer.has_written(folder, name, file.read_bytes)


def test_pruning_removes_it_with_its_job(kept: Any, tmp_path: Path) -> None:
    kept(json.dumps(LARGE).encode())
    place = open_place(str(tmp_path / "history"))
    stock = Stock(place, [*kept_jobs(place, ["team"])])
    (job,) = stock.surplus(Retention(count=0), now=4e9)
    stock.remove(job, print)
    assert not [*tmp_path.rglob("result-*.jsonl")]


def test_a_result_of_another_job_or_none_is_an_error_that_says_so(kept: Any, tmp_path: Path) -> None:
    said = kept(json.dumps(LARGE).encode())
    with pytest.raises(BadInputError, match="is not the result of train"):
        result_of(a_job(tmp_path / "history", said, uid="other"))
    (tmp_path / "history" / said["resultPlace"]).write_bytes(b'{"v":1,"uid":"0a1b2c3d"}\n{"res')
    with pytest.raises(BadInputError, match="holds no result of train that can be read"):
        result_of(a_job(tmp_path / "history", said))
    (tmp_path / "history" / said["resultPlace"]).unlink()
    with pytest.raises(BadInputError, match="the result of train is no longer in"):
        result_of(a_job(tmp_path / "history", said))
    assert result_of(a_job(tmp_path / "history", {})) is None


def test_a_larger_one_without_a_history_is_an_error(kept: Any) -> None:
    with pytest.raises(ConfigError, match="too large for the status, and no history is kept"):
        kept(json.dumps(LARGE).encode(), history=False)


def test_a_run_on_this_machine_without_a_history_keeps_it_in_its_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    env = {Env.RUN_DIR: str(run.root), Env.STATUS_PORT: "29501", Env.NAMESPACE: "team", Env.NAME: "train"}
    result_file(tmp_path / "beat", 2).write_text(json.dumps(LARGE))
    with recorded({**env, Env.UID: UID}) as history:
        said = asyncio.run(kept_result(tmp_path / "beat", 2, history, 30))
    assert PLACES.fullmatch(said["resultPlace"])
    assert [path.name for path in run.root.iterdir()] == ["results"]
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    job = a_job(tmp_path, said)
    job = job.model_copy(update={"spec": DDPJobSpec.model_validate({"template": template})})
    assert result_of(job, run=run) == LARGE


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"),
        StoreError("the store", OSError("status code: 503")),
    ],
    ids=str,
)
def test_a_job_does_not_succeed_while_its_result_cannot_be_kept_and_its_restart_counts(
    error: Exception, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectoryTarget, "save", raising(error))
    with pytest.raises(StorageError, match="cannot keep the job's result in the history") as raised:
        kept(json.dumps(LARGE).encode())
    assert DEFAULTS[raised.value.cause] is RestartAction.RESTART


@pytest.mark.parametrize(("most", "grace"), [(0.01, 30), (60, 0.02)])
def test_a_history_that_takes_longer_than_it_may_or_than_the_grace_period_is_an_error(
    most: float, grace: float, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    monkeypatch.setattr(NodeHistory, "keep_result", lambda *_: waits.wait(30))
    monkeypatch.setattr(module, "SECONDS", most)
    began = time.monotonic()
    with pytest.raises(StorageError, match="it took more than"):
        kept(json.dumps(LARGE).encode(), grace=grace)
    waits.set()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, "Read-only file system"),
        PermissionError(errno.EACCES, "Permission denied"),
        ConfigError("team belongs to user 7, not to this process's user 8"),
        StoreError("the store", OSError("status code: 403")),
    ],
    ids=str,
)
def test_a_job_fails_if_no_other_attempt_could_keep_its_result(
    error: Exception, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectoryTarget, "save", raising(error))
    with pytest.raises(ConfigError, match="cannot keep the job's result in the history"):
        kept(json.dumps(LARGE).encode())


def test_a_job_fails_if_a_file_is_in_the_place_of_its_history(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "history").write_text("a file")
    with pytest.raises(ConfigError, match="cannot keep the job's result in the history"):
        kept(json.dumps(LARGE).encode())


def raising(error: Exception) -> Callable[..., None]:
    def save(*_: object) -> None:
        raise error

    return save
