"""Scripts that clean up by Python's own means, and know of no signal, when their run is told to stop."""

import re
import signal

import pytest

from tests.support.waiting import patience

from .here import Here, without_torch

SAVES = """
import atexit, os, time
from pathlib import Path

rank, kept = os.environ["RANK"], Path("kept")
step = int(kept.read_text()) if kept.exists() else 0
print(f"begins at {step}", flush=True)
atexit.register(lambda: print("atexit", flush=True))
try:
    while True:
        time.sleep(0.02)
        step += 1
        print(f"step {step}", flush=True)
except KeyboardInterrupt:
    if rank != "0":
        raise
    time.sleep(1.0)  # The other rank has ended by then.
    kept.write_text(str(step))
finally:
    print("finally", flush=True)
"""
"""Only rank 0 has something to save, and takes longer; it ends with 0, the other by the interrupt."""


def trains(here: Here, attempt: int = 1) -> bool:
    """Whether both ranks make steps."""
    return all("step 5" in here.log("train", rank, attempt) for rank in range(2))


@pytest.mark.parametrize("by", ["ddpjob stop", "Ctrl-C"])
def test_a_script_that_is_stopped_cleans_up_and_goes_on_from_what_it_has_kept(here: Here, by: str) -> None:
    without_torch(here.directory)
    (here.directory / "train.py").write_text(SAVES)
    run = here.start("run", "train.py", "--nodes", "2")
    here.wait("steps of both ranks", lambda: trains(here))
    if by == "Ctrl-C":
        run.send_signal(signal.SIGINT)
    else:
        code, output = here.ddpjob("stop", "train")
        assert code == 0, output
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 130, output
    for rank in range(2):
        log = here.log("train", rank)
        assert ("finally" in log, "atexit" in log) == (True, True), f"rank {rank}: {log}"
    kept = (here.directory / "kept").read_text()
    status = here.status("train")
    assert (status["state"], status.get("incidents", []), status.get("restarts", 0)) == ("Suspended", [], 0), status

    here.start("run", "--resume", "train")
    here.wait("its next steps", lambda: re.findall(r"begins at (\d+)\n(?:.*\n)*?step", here.log("train", 0, 2)))
    assert f"begins at {kept}\n" in here.log("train", 0, 2)
