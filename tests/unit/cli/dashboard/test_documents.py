"""What a page gets of a row and of a job in full, as JSON."""

from datetime import timedelta
from typing import Any

from ddpjob_operator.cli.dashboard.documents import detail_document, row_document
from ddpjob_operator.view_model import (
    Branch,
    Curve,
    Interruption,
    JobDetail,
    JobKey,
    JobRow,
    Origin,
    RankRow,
    TimeAxis,
)
from ddpjob_operator.view_model.start_tree import StartStep

from tests.unit.view_model.jobs import NOW

BEGAN = NOW - timedelta(seconds=100)
ROW = JobRow(
    key=JobKey(Origin.CLUSTER, "team", "digits", "u"),
    state="Running",
    message="the message",
    why="for rank 1",
    ready="1/2",
    progress="30%",
    percent=30.8,
    eta="5m",
    eta_seconds=300,
    samples_per_second=640.0,
    loss="0.25",
    restarts=2,
    disruptions=1,
    goodput=0.8251,
    made=BEGAN,
    finished=True,
)
OF_ROW: dict[str, Any] = {
    "id": "cluster:u",
    "name": "digits",
    "origin": "cluster",
    "namespace": "team",
    "state": "Running",
    "message": "the message",
    "why": "for rank 1",
    "trouble": False,
    "needsALook": False,
    "ended": None,
    "ready": "1/2",
    "progress": "30%",
    "percent": 30.8,
    "eta": "5m",
    "etaSeconds": 300,
    "samplesPerSecond": 640.0,
    "loss": "0.25",
    "restarts": 2,
    "disruptions": 1,
    "goodput": 0.83,
    "made": BEGAN.timestamp(),
    "finished": True,
}
RANK = RankRow("3", 1, "node-b", "Running", 7, "Saving", 0.5, {"data": 2.0}, 2.5, "heat", 9, "NET/IB", of_node=True)


def hidden(text: str) -> str:
    return f"<{text}>"


def test_a_row() -> None:
    assert row_document(ROW, hidden) == OF_ROW | {"message": "<the message>", "why": "<for rank 1>"}
    assert row_document(ROW) == OF_ROW
    assert row_document(JobRow(ROW.key, "Pending", "API_TOKEN=hunter2-hunter2"))["message"] == "API_TOKEN=•••"
    unknown = row_document(JobRow(ROW.key, "Pending"))
    assert (unknown["goodput"], unknown["made"], unknown["finished"]) == (None, None, False)


def test_a_job_in_full() -> None:
    incident = Interruption(1, BEGAN + timedelta(seconds=33.3333), 2, "rank 1: Application", "no", 7, 5)
    detail = JobDetail(
        row=ROW,
        lines={"State": "Running"},
        ranks=[RANK],
        slowest=RANK,
        start=[Branch(StartStep.QUEUE, 1.26, over=True), Branch(StartStep.CODE, None, over=False)],
        axis=TimeAxis(BEGAN, NOW + timedelta(seconds=0.4), [incident]),
        curves={"loss": Curve([(1, 0.5), (2, 0.25)])},
        clock=Curve([(1, 10.0), (2, 20.0)]),
    )
    document = detail_document(detail, hidden)
    assert document.pop("row")["message"] == "<the message>"
    assert document == {
        "noCurves": "<>",
        "lines": {"State": "<Running>"},
        "ranks": [
            {
                "ranks": "3",
                "node": 1,
                "nodeName": "node-b",
                "state": "Running",
                "step": 7,
                "activity": "Saving",
                "stepSeconds": 0.5,
                "ownSeconds": 2.0,
                "slowdown": 2.5,
                "slowed": "heat",
                "memoryBytes": 9,
                "transport": "NET/IB",
                "ofNode": True,
            }
        ],
        "slowest": "ranks 3 on node 1 node-b: 2.5 x the usual time",
        "start": [
            {"step": "queue", "seconds": 1.3, "over": True},
            {"step": "code", "seconds": None, "over": False},
        ],
        "axis": {
            "began": BEGAN.timestamp(),
            "until": NOW.timestamp(),
            "incidents": [
                {
                    "number": 1,
                    "time": incident.time.timestamp(),
                    "place": 0.332,
                    "attempt": 2,
                    "cause": "<rank 1: Application>",
                    "message": "<no>",
                    "step": 7,
                    "resumed": 5,
                    "failed": True,
                }
            ],
        },
        "curves": {"loss": [[1, 2], [0.5, 0.25]]},
        "clock": [[1, 2], [10.0, 20.0]],
    }
    assert detail_document(JobDetail(ROW, {}), hidden)["axis"] is None
