"""What NCCL's watchdog says before it ends a rank: real supervisors and ranks, and a watchdog that is made up.

There is no GPU here. The words are those of a real one, from a public report; the rank prints them, and aborts.
"""

from pathlib import Path

from tests.training.gang import a_gang
from tests.unit.supervisor.gpu.transcripts import DIRECTORY

SCRIPT = """
import os, pathlib, sys, threading, time
import torch, torch.distributed as dist

first = os.environ["DDPJOB_ATTEMPT"] == "1"

def load_batch(step):
    if first and step == 3 and dist.get_rank() == 1 and sys.argv[1] == "waits":
        time.sleep(3600)
    return torch.randn(4, 8)

def watchdog():
    os.write(2, pathlib.Path(sys.argv[2]).read_bytes())
    os.abort()

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    batch = load_batch(step)
    if first and step == 3 and dist.get_rank() == 0:
        threading.Timer(0.5, watchdog).start()
        if sys.argv[1] == "breaks":
            time.sleep(3600)
    model(batch).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def lines(name: str) -> str:
    return str(DIRECTORY / f"{name}.log")


def test_the_rank_that_did_not_come_is_named_and_not_the_one_that_gave_up_waiting(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(SCRIPT)
    with a_gang(tmp_path, 2) as gang:
        gang.start("waits.py", "waits", lines("timeout-torch-2.7"))
        assert gang.ends() == [0, 0]
    log = gang.log(0)
    assert "Watchdog caught collective operation timeout" in log, "all that it says is passed on"
    assert "stalled: rank 1 did not enter the collective: it is in load_batch (waits.py:" in log
    assert "attempt 2 begins in place: rank 1 failed at step 2: Stalled: rank 1 did not enter" in log


def test_a_broken_gpu_is_the_cause_and_its_rank_is_named(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text(SCRIPT)
    with a_gang(tmp_path, 2, DDPJOB_LEAVE_TO_OPERATOR="DeviceFailed") as gang:
        gang.start("breaks.py", "breaks", lines("ecc"))
        assert gang.ends() == [134, 204]
    report = gang.report(0)
    said = "CUDA error: uncorrectable ECC error encountered"
    assert (report["cause"], report["message"]) == ("DeviceFailed", said)
