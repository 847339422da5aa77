"""The six jobs of one night, and their program."""

from pathlib import Path
from typing import Any

from tests.support.jobs import a_job
from tests.support.kubelets import WAITING
from tests.support.ports import hold_port

PROGRAM = '''
import math, os, sys, time
from pathlib import Path
import ddpjob

fault, steps, shared = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
rank, world, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "DDPJOB_ATTEMPT"))


def read_batch(step):
    if (fault, rank, attempt, step) == ("stall", 1, 1, 40):
        (shared / "began").write_text(str(time.time()))
        time.sleep(1e9)  # As a read from a file server that has gone away.


def all_reduce(step):
    """All ranks finish the step together."""
    (shared / f"{attempt}-{rank}").write_text(str(step))
    for other in range(world):
        while not ((file := shared / f"{attempt}-{other}").exists() and int(file.read_text() or 0) >= step):
            time.sleep(0.05)


saved = shared / "saved"
first = int(saved.read_text()) + 1 if saved.exists() else 1
print(f"training begins at step {first}", flush=True)
for step in range(first, steps + 1):
    read_batch(step)
    time.sleep(0.5)
    all_reduce(step)
    loss = 2.3 / math.sqrt(step)
    if fault == "diverge" and step >= 60:
        if step == 60 and rank == 0:
            (shared / "began").write_text(str(time.time()))
        loss = math.nan
    ddpjob.report(step=step, total=steps, loss=loss)
    if step % 10 == 0:
        print(f"step {step} of {steps}: loss {loss:.3f}", flush=True)
        if rank == 0 and not math.isnan(loss):
            (shared / "saved.new").write_text(str(step))
            (shared / "saved.new").replace(saved)
    if fault == "diverge" and step == 100:
        raise ddpjob.DivergedError(f"the loss has been NaN since step 60")
'''

NIGHT = {
    ("vision", "resnet"): ("none", 160),
    ("vision", "segment"): ("stall", 200),
    ("vision", "wide"): ("none", 60),
    ("language", "gpt"): ("diverge", 200),
    ("language", "bert"): ("none", 200),
    ("language", "finetune"): ("none", 120),
}
"""What happens to each team's jobs, and how many steps they have. `wide` has to wait for vision's quota."""


def job_of(team: str, name: str, directory: Path) -> dict[str, Any]:
    """The job, whose files are in a directory of this machine."""
    fault, steps = NIGHT[team, name]
    job = a_job(
        name,
        annotations=WAITING,
        network={port: hold_port() for port in ("masterPort", "statusPort", "controlPort")},
        history={"path": str(directory / "history")},
        preflight="Disabled",
        stallTimeoutSeconds=20,
    )
    (directory / name).mkdir(parents=True)
    pod = job["spec"]["template"]["spec"]
    pod["containers"][0] |= {
        "command": ["ddpjob-supervise", "--start-method", "cold", str(directory / "train.py")],
        "args": [fault, str(steps), str(directory / name)],
        "resources": {"requests": {"cpu": "40"}},
        "volumeMounts": [{"name": "shared", "mountPath": str(directory)}],
    }
    pod["volumes"] = [{"name": "shared", "hostPath": {"path": str(directory)}}]
    return job
