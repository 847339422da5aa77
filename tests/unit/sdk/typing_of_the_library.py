"""Uses every public name of `ddpjob` as programs do. It never runs: mypy checks it, and each `assert_type` in it."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, assert_type

import ddpjob
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.api.status import Progress


def submits() -> None:
    job = ddpjob.submit(
        "train.py",
        args=["--lr", 0.1],
        nodes=2,
        gpus_per_node=8,
        name="resnet",
        env={"SEED": 1},
        source=Path(),
        queue="team-a",
        quiet=True,
    )
    assert_type(job, ddpjob.Job)
    assert_type(ddpjob.connect("resnet", namespace="team", kubeconfig=Path("kubeconfig")), ddpjob.Job)
    assert_type(ddpjob.submit("train.py", replace=True, in_place=True), ddpjob.Job)
    ddpjob.submit("train.py", in_place="yes")  # type: ignore[arg-type]
    ddpjob.submit("train.py", nodes="2")  # type: ignore[arg-type]
    ddpjob.submit("train.py", "--lr")  # type: ignore[arg-type]


def trains_a_function(lr: float) -> dict[str, float]:
    ddpjob.set_result({"lr": lr})
    return {"lr": lr}


def calls() -> None:
    assert_type(ddpjob.submit(trains_a_function, {"lr": 0.1}, nodes=2), ddpjob.Job)
    assert_type(ddpjob.submit(trains_a_function).result("2h"), Any)
    assert_type(ddpjob.run(trains_a_function, {"lr": 0.1}, procs_per_node=2, quiet=True), Any)
    assert_type(ddpjob.run(Path("train.py"), args=["--lr", 0.1], run_dir=Path("runs")), Any)
    ddpjob.run(7)  # type: ignore[arg-type]
    ddpjob.submit(trains_a_function, 0.1)  # type: ignore[arg-type]


def uses(job: ddpjob.Job) -> None:
    assert_type(job.name, str)
    assert_type(job.namespace, str)
    assert_type(job.status(), DDPJobStatus)
    assert_type(job.wait("2h", quiet=True), DDPJobStatus)
    assert_type(job.wait(timeout=1.5).succeeded, bool)
    assert_type(job.report("page.html"), Path)
    for line in job.logs(rank=3, follow=True):
        assert_type(line, ddpjob.LogLine)
        assert_type((line.time, line.rank, line.text), tuple[datetime, int | None, str])
    assert_type(job.progress(), Iterator[Progress])
    for event in job.events():
        assert_type(event, ddpjob.JobEvent)
        assert_type(event.reason, str)
    job.suspend()
    job.resume()
    job.scale(4)
    job.cancel()
    job.delete()
    job.scale("4")  # type: ignore[arg-type]
    with job as same:
        assert_type(same, ddpjob.Job)


def fails(job: ddpjob.Job) -> str:
    try:
        job.result(timeout="2h")
    except ddpjob.RankFailed as failed:
        assert_type((failed.rank, failed.node, failed.step), tuple[int | None, int, int | None])
        assert_type((failed.cause, failed.remote_traceback, failed.hint), tuple[str, str, str])
        return failed.cause
    except ddpjob.JobFailed as failed:
        assert_type(failed.status, DDPJobStatus)
    except (ddpjob.BadInputError, ddpjob.ClusterError) as error:
        return str(error)
    return ""


def trains(model: Any) -> None:
    training = ddpjob.Training(model=model)
    assert_type(training, ddpjob.Training)
    checkpoints: type[ddpjob.Checkpoints] = ddpjob.Checkpoints
    resumed: type[ddpjob.Resumed] = ddpjob.Resumed
    print(checkpoints, resumed, ddpjob.newest)
    ddpjob.report(step=1, loss=0.5)
    with ddpjob.activity("Loading"):
        assert_type(ddpjob.stop_requested(), bool)
    ddpjob.on_save_request(lambda: None)


ERRORS: list[type[Exception]] = [
    ddpjob.CheckpointUnusableError,
    ddpjob.ConfigError,
    ddpjob.DivergedError,
    ddpjob.PeerLostError,
    ddpjob.StorageError,
    ddpjob.StorageFullError,
    ddpjob.StorageUnavailableError,
    ddpjob.SupersededError,
    ddpjob.TrainerError,
]
