"""Functions of a user's module and of a notebook on real nodes: results, exceptions, and jobs that are cancelled."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import ddpjob
import pytest

from tests.plant import Plant
from tests.plant.machines import Machines
from tests.support.jobs import Team
from tests.support.waiting import patience

from .work import LONG, an_engineer, claimed, logs_of_pods

MODULE = """
import os
import signal
import time

import ddpjob
import torch
import torch.distributed as dist


def total(fails=None):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ones = torch.ones(1)
    dist.all_reduce(ones)
    if rank == fails:
        raise ValueError(f"rank {rank} of {int(ones)} has no data")
    dist.barrier()
    dist.destroy_process_group()
    return {"world": ones, "lines": ["x"] * 3}


def endless():
    signal.signal(signal.SIGTERM, lambda *_: print("saved in time", flush=True) or os._exit(0))
    for step in range(1, 36_000):
        ddpjob.report(step=step, loss=1 / step)
        print("step", step, flush=True)
        time.sleep(0.1)
"""


@pytest.fixture
def mine(real: Plant, team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A user's module, and the user's rights: only those to run jobs."""
    kubeconfig = an_engineer(real, team.namespace)
    for name, value in real.environment(kubeconfig).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "functions_of_mine", raising=False)
    Path("functions_of_mine.py").write_text(MODULE, encoding="utf-8")
    return importlib.import_module("functions_of_mine")


def submit(team: Team, function: Any, arguments: dict[str, Any] | None = None, **options: Any) -> ddpjob.Job:
    threads = {"OMP_NUM_THREADS": 1}
    return ddpjob.submit(function, arguments, nodes=2, env=threads, namespace=team.namespace, **options)


def test_a_function_returns_its_result_and_its_exception_from_two_nodes(mine: ModuleType, team: Team) -> None:
    works = submit(team, mine.total, name="works")
    assert works.result(patience(LONG)) == {"world": 2.0, "lines": ["x"] * 3}
    fails = submit(team, mine.total, {"fails": 1}, name="fails", max_restarts=0)
    with pytest.raises(ddpjob.RankFailed) as raised:
        fails.result(patience(LONG))
    failed = raised.value
    assert (failed.rank, failed.cause) == (1, "Application")
    assert failed.node_name in {pod["spec"]["nodeName"] for pod in team.pods("fails")}
    line = next(number for number, text in enumerate(MODULE.splitlines(), 1) if "raise ValueError" in text)
    assert f'functions_of_mine.py", line {line}, in total' in failed.remote_traceback
    assert failed.remote_traceback.endswith("ValueError: rank 1 of 2 has no data"), failed.remote_traceback


@pytest.mark.full("tests/cluster/test_sdk.py, with pods that are only pretended")
def test_a_block_that_is_left_by_an_exception_cancels_its_job_whose_pods_save_and_whose_history_stays(
    mine: ModuleType, team: Team, host: Machines
) -> None:
    claimed(team, "kept", host.new_folder())
    job = submit(team, mine.endless, name="endless", checkpoint="kept:/checkpoints")
    with pytest.raises(RuntimeError, match="enough") as raised:
        _leave_after_some_steps(job)
    assert raised.value.__notes__ == ["endless was cancelled because of this"]
    status = job.wait(patience(LONG), quiet=True)
    assert (status.state, status.reason, status.incidents) == ("Failed", "Cancelled", ())
    said = logs_of_pods(team, "endless")
    assert len(said) == 2
    assert all("saved in time" in text for text in said), said
    team.kubectl("delete", "pods", "--all")
    # The history is on a claim, which only somebody who may create pods can read.
    known = ddpjob.connect("endless", namespace=team.namespace, kubeconfig=team.plant.kubeconfig)
    lines = [line.text for line in known.logs(node=0)]
    assert {"step 3", "saved in time"} <= {*lines}, "from the history"


def _leave_after_some_steps(job: ddpjob.Job) -> None:
    with job:
        for progress in job.progress():
            if (progress.step or 0) > 3:
                raise RuntimeError("enough")


CELLS = [
    "import ddpjob\nfrom functions_of_mine import total\nOPTIONS = dict(nodes=2, env={'OMP_NUM_THREADS': 1})",
    """
SCALE = 10
def train(steps, fails=False):
    import os, time
    for step in range(1, steps + 1):
        time.sleep(0.2)
        ddpjob.report(step=step, loss=1 / step)
        print("step", step, flush=True)
    if fails and os.environ["RANK"] == "1":
        raise ValueError(f"no more data after {SCALE * step}")
    time.sleep(1)
    return {"loss": SCALE / step}
""",
    "job = ddpjob.submit(train, {'steps': 60}, name='works', **OPTIONS)\nstatus = job.wait()",
    "print('result', job.result())",
    "ddpjob.submit(train, {'steps': 2, 'fails': True}, name='fails', max_restarts=0, **OPTIONS).result()",
]


@pytest.mark.usefixtures("mine")
@pytest.mark.full("tests/local/test_notebook.py, on this machine, and tests/unit/sdk/test_notebook.py")
def test_a_notebook_trains_on_nodes_sees_the_output_move_and_gets_the_result_and_the_exception(
    team: Team, tmp_path: Path
) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for n, source in enumerate([CELLS[0].replace("dict(", f"dict(namespace={team.namespace!r}, "), *CELLS[1:]])
    ]
    notebook = tmp_path / "notebook.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    watching = [sys.executable, "-c", WATCHES, str(notebook)]
    done = subprocess.run(watching, check=False, capture_output=True, text=True, timeout=patience(LONG))
    assert done.returncode == 0, done.stderr
    pictures = [line for line in done.stdout.splitlines() if line.startswith("picture")]
    assert len({*pictures}) > 3, done.stdout
    *_, waited, result, fails = json.loads(notebook.read_text())["cells"]
    (picture,) = [output for output in waited["outputs"] if output["output_type"] == "display_data"]
    assert "Succeeded" in "".join(picture["data"]["text/html"]), "the last picture stays in the file"
    assert "<svg" in "".join(picture["data"]["text/html"])
    assert "step 60" in "".join(picture["data"]["text/plain"])
    assert "".join(result["outputs"][0]["text"]).startswith("result {'loss': 0.16666")
    (error,) = [output for output in fails["outputs"] if output["output_type"] == "error"]
    shown = "\n".join(error["traceback"])
    assert error["ename"] == "RankFailed"
    assert "ValueError: no more data after 20" in shown
    assert "Cell In[2], line 9, in train" in shown, "of the rank"


WATCHES = """
import re
import sys
import nbformat
from nbclient import NotebookClient

class Client(NotebookClient):
    def process_message(self, message, cell, cell_index):
        if message["msg_type"] in {"display_data", "update_display_data"}:
            print("picture", re.findall("step [0-9]+", message["content"]["data"].get("text/plain", "")), flush=True)
        return super().process_message(message, cell, cell_index)

notebook = nbformat.read(sys.argv[1], as_version=4)
Client(notebook, timeout=900, allow_errors=True).execute()
nbformat.write(notebook, sys.argv[1])
"""
"""Executes a notebook, and prints each picture that a cell shows."""
