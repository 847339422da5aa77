"""Scripts as strangers write them, with the real libraries, and what the job's status tells of them in the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.here import BIN, Here
from tests.support.hugging_face import NEWEST, OLDEST, install_transformers
from tests.support.trainers import DATA, HUGGING_FACE, LIGHTNING, TOLD

pytestmark = pytest.mark.full("tests/unit/rank/test_integrations has what the libraries call; here are the libraries")

ACCELERATE = f"""{DATA}
from ddpjob_rank.reporting import report
from accelerate import Accelerator
from ddpjob.integrations.accelerate import DDPJobTracker
accelerator = Accelerator(cpu=True, log_with=DDPJobTracker(total=60))
accelerator.init_trackers("any")
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=10))
evaluated = accelerator.prepare(DataLoader(data, batch_size=100))
step, heard = 0, set()
for epoch in range(3):
    model.train()
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        accelerator.log({{"loss": loss.item()}}, step=step)
    model.eval()
    for x, y in evaluated:
        with torch.no_grad():
            accelerator.gather_for_metrics(model(x).argmax(dim=1))
        heard.add(report._current.record.activity)
accelerator.end_training()
print("heard:", *heard)
"""
BARS = f"""{DATA}
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in tqdm(range(3)):
    for x, y in tqdm(DataLoader(data, batch_size=20), leave=False):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def transformers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed."""
    directory = tmp_path_factory.mktemp("transformers")
    install_transformers(directory, request.param)
    return directory


ANNOUNCED = """
from ddpjob_rank.reporting import report
print("evaluations announced:", report._current.record.announces)
"""


def progress(here: Here, script: str, **env: str) -> dict[str, Any]:
    """What the status of a job of two nodes has of a script in the end."""
    (here.directory / "script.py").write_text(script)
    job = here.job("any", str(BIN / "ddpjob-supervise"), "script.py", nodes=2, backend="Gloo")
    code, output = here.ddpjob("run", job, **env)
    assert code == 0, output
    return dict(here.status("any")["progress"])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (LIGHTNING, TOLD),
        (ACCELERATE, {"step": 60, "totalSteps": 60}),
        (BARS, TOLD),
    ],
    ids=["Lightning, unchanged", "Accelerate, with our tracker", "bars of tqdm"],
)
def test_a_strangers_script_fills_its_jobs_progress(here: Here, script: str, told: dict[str, Any]) -> None:
    seen = progress(here, script)
    assert told.items() <= seen.items(), json.dumps(seen)
    assert seen["percent"] == 100


def test_accelerates_evaluations_are_heard_without_a_tracker(here: Here) -> None:
    unchanged = ACCELERATE.replace(", log_with=DDPJobTracker(total=60)", "")
    assert "step" in progress(here, unchanged)
    assert "heard: evaluation\n" in here.ddpjob("logs", "any")[1]


def test_hugging_faces_trainer_fills_its_jobs_progress_by_itself(here: Here, transformers: Path) -> None:
    seen = progress(here, HUGGING_FACE + ANNOUNCED, PYTHONPATH=str(transformers))
    assert (TOLD | {"percent": 100}).items() <= seen.items(), json.dumps(seen)
    assert 0 < seen["loss"] < 3
    assert "evaluations announced: 1" in here.ddpjob("logs", "any")[1]
