"""What NCCL and its watchdog say: real supervisors and ranks, and an NCCL that is made up.

There is no GPU here. The words are those of a real one, from public reports; the rank prints them.
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
    assert "attempt 2 begins in place: rank 1 failed: Stalled: rank 1 did not enter" in log


def test_a_broken_gpu_is_the_cause_and_its_rank_is_named(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text(SCRIPT)
    with a_gang(tmp_path, 2, DDPJOB_LEAVE_TO_OPERATOR="DeviceFailed") as gang:
        gang.start("breaks.py", "breaks", lines("ecc"))
        assert gang.ends() == [134, 204]
    report = gang.report(0)
    said = "CUDA error: uncorrectable ECC error encountered"
    assert (report["cause"], report["message"]) == ("DeviceFailed", said)


ANSWERS = """
import os, pathlib, socket, sys, threading, time
import torch, torch.distributed as dist

first = os.environ["DDPJOB_ATTEMPT"] == "1"

def answer(listening, said):
    while True:
        connection, _ = listening.accept()
        connection.recv(4096)
        connection.sendall(b"SERVER PROTOCOL 2\\n")
        connection.recv(4096)
        connection.sendall(b"OK\\n" + said)
        connection.close()

def load_batch(step):
    if first and step == 3 and dist.get_rank() == 1:
        time.sleep(3600)
    return torch.randn(4, 8)

def listens():
    host, port = os.environ["NCCL_RAS_ADDR"].split(":")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((host, int(port)))
    listening.listen()
    return listening

pathlib.Path(os.environ["NCCL_DEBUG_FILE"]).write_bytes(pathlib.Path(sys.argv[1]).read_bytes())
threading.Thread(target=answer, args=(listens(), pathlib.Path(sys.argv[2]).read_bytes()), daemon=True).start()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    model(load_batch(step)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_how_nccl_passes_data_and_what_its_ras_knows_of_a_stall_stand_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(ANSWERS)
    with a_gang(tmp_path, 2, DDPJOB_BACKEND="nccl", DDPJOB_STALL_TIMEOUT_SECONDS="3") as gang:
        gang.start("answers.py", lines("transport-infiniband"), lines("ras-nccl-2.26"))
        assert gang.ends() == [0, 0]
    log = gang.log(0)
    assert "rank 0: NCCL uses NET/IB, P2P" in log
    assert "NCCL INFO" not in log, "it was asked for them by its supervisor alone"
    assert "NCCL's RAS reports on all ranks:" in log
    assert "  Communicator ranks have different AllGather operation counts\n" in log
    assert "NCCL's RAS reports" not in gang.log(1), "one node asks"
    assert "stalled: rank 1 did not enter the collective: it is in load_batch (answers.py:" in log
