"""What supervisors keep of a run is read when the run is gone, and is what its log was."""

import json
import signal

from tests.local.here import Here
from tests.support.waiting import patience, wait_for

TRAIN = """
import os, pathlib, sys, time
import ddpjob
rank, attempt = int(os.environ["RANK"]), int(os.environ["DDPJOB_ATTEMPT"])
print("rank", rank, "begins", os.environ["SOME_TOKEN"], flush=True)
os.write(2, b"on stderr\\n")
for step in range(1, 6):
    ddpjob.report(step=step, total=5, loss=1 / step)
    print(f"step {step} of attempt {attempt}", flush=True)
    time.sleep(0.3)
    if attempt == 1 and rank == 1 and step == 3:
        pathlib.Path("failed").touch()
        raise ValueError("no third step")
"""


def lines(text: str) -> dict[str, list[str]]:
    """The lines of each node."""
    nodes: dict[str, list[str]] = {}
    for line in text.splitlines():
        node, _, said = line.partition("] ")
        nodes.setdefault(node, []).append(said)
    return nodes


def test_a_run_that_was_removed_can_still_be_read(here: Here) -> None:
    (here.directory / "train.py").write_text(TRAIN)
    options = ("--nodes", "2", "--start-method", "cold", "--name", "kept", "--env", "SOME_TOKEN=abc-1234567")
    code, output = here.ddpjob("run", "train.py", *options, "--history", "history")
    assert code == 0, output
    log = lines(here.says("logs", "kept")[1])
    (uid,) = {json.loads((here.run("kept") / "job.json").read_text())["metadata"]["uid"]}
    here.says("rm", "kept")
    assert not here.run("kept").exists()

    code, text = here.says("logs", "kept", "--history", "history")
    assert code == 0
    assert lines(text) == {node: [line.replace("abc-1234567", "•••") for line in said] for node, said in log.items()}
    assert all("on stderr" in said for said in lines(text).values())
    code, text = here.says("status", "--history", "history")
    for line in (f"Uid:          {uid}", "End:          the program finished", "Progress:     step 5 of 5"):
        assert line in text
    assert "rank 1 on node 1: Application: ValueError: no third step" in text
    assert "   Succeeded   " in here.says("ls", "--history", "history")[1]
    code, text = here.says("report", "--history", "history", "--output", "page.html")
    assert code == 0, text
    assert "rank 1: Application" in (here.directory / "page.html").read_text()


STEPS = """
import time
import ddpjob
for step in range(1, 10_000):
    ddpjob.report(step=step, total=10_000)
    time.sleep(0.05)
"""


def test_a_run_that_lost_a_node_and_was_stopped_with_ctrl_c_says_so(here: Here) -> None:
    (here.directory / "train.py").write_text(STEPS)
    options = ("--nodes", "2", "--start-method", "cold", "--name", "kept", "--history", "history")
    run = here.start("run", "train.py", *options)
    wait_for(
        "steps", lambda: any((here.directory / "history").rglob("events-*")) and here.status("kept").get("progress")
    )
    here.trainers("kept")[1].kill()  # Of what happened to its supervisor, no other one knows.
    here.wait("the second attempt", lambda: any((here.directory / "history").rglob("events-*-00002-*")))
    here.wait("its ranks", lambda: here.status("kept")["state"] == "Running")
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=patience(60))
    code, text = here.says("status", "--history", "history")
    assert code == 0, output
    assert "   Stopped   " in here.says("ls", "--history", "history")[1]
    assert "End:          the program was told to stop (SIG" in text, text
    incident = here.status("kept")["incidents"][0]
    assert f"Incidents:    attempt 1, rank 1 on node 1: {incident['cause']}: {incident['message']}" in text, text
