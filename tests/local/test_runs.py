"""`ddpjob run` with real processes: how a job starts, what its pods are given, how it ends."""

import json
import re
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from ddpjob_operator.local.machine import PORTS

from tests.local.here import BIN, Here, script
from tests.support.waiting import patience


def test_a_job_whose_ranks_all_exit_with_0_succeeds(here: Here) -> None:
    code, output = here.ddpjob("run", here.job("fine", *script("print('hello')"), nodes=3))
    assert code == 0, output
    assert here.status("fine")["state"] == "Succeeded"
    assert [here.log("fine", rank) for rank in range(3)] == ["hello\n"] * 3
    assert all(f"[rank {rank}] hello" in output for rank in range(3))


def test_each_rank_finds_its_place_in_the_world_in_its_environment(here: Here) -> None:
    body = "print(json.dumps(dict(os.environ)))"
    checkpoint = {"path": "/checkpoints", "everySteps": 7}
    code, output = here.ddpjob(
        "run",
        here.job("env", *script(body), nodes=2, checkpoint=checkpoint),
        RANK="7",
        PET_NNODES="9",
        TRACEPARENT=(trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        TRACESTATE="?",
    )
    assert (code, output.count("the job does not get TRACESTATE,")) == (0, 1), output
    first, second = (json.loads(here.log("env", rank)) for rank in range(2))
    assert [env["RANK"] for env in (first, second)] == ["0", "1"]
    assert [env["NODE_RANK"] for env in (first, second)] == ["0", "1"]
    assert {env["WORLD_SIZE"] for env in (first, second)} == {"2"}
    assert {env["PET_NNODES"] for env in (first, second)} == {"2"}
    assert {env["MASTER_ADDR"] for env in (first, second)} == {"127.0.0.1"}
    assert first["MASTER_PORT"] == second["MASTER_PORT"] == first["PET_MASTER_PORT"]
    assert first["DDPJOB_CHECKPOINT_EVERY_STEPS"] == "7"
    assert Path(first["DDPJOB_CHECKPOINT_DIR"]) == here.run("env") / "volumes" / "checkpoints"
    assert first["DDPJOB_BACKEND"] == "gloo"
    assert [(env["TRACEPARENT"], env.get("TRACESTATE")) for env in (first, second)] == [(trace, None)] * 2


def test_a_node_of_several_processes_is_told_so_and_leaves_the_ranks_to_what_it_starts(here: Here) -> None:
    body = "print(*(os.environ.get(name) for name in ('NODE_RANK', 'NPROC_PER_NODE', 'WORLD_SIZE', 'RANK')))"
    code, output = here.ddpjob("run", here.job("several", *script(body), nodes=2, procsPerNode=3))
    assert code == 0, output
    assert "several: 2 nodes x 3 processes" in output
    assert "[node 0] 0 3 6 None" in output
    assert here.says("logs")[1] == "[node 0] 0 3 6 None\n[node 1] 1 3 6 None\n"


def test_arguments_are_expanded_as_a_kubelet_does_it_and_mount_paths_are_directories_of_the_run(here: Here) -> None:
    container = {
        "args": ["--data=/data/set", "$(NODE_RANK)/$(WORLD_SIZE)", "$(HOME)", "$$(NODE_RANK)", "/database"],
        "env": [
            {"name": "GREETING", "value": "I am $(NODE_RANK)"},
            {"name": "INIT", "value": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"},
        ],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "images"}}]}
    body = "print(json.dumps([sys.argv[1:], os.environ['GREETING'], os.environ['INIT'], os.getcwd()]))"
    code, output = here.ddpjob("run", here.job("words", *script(body), container=container, pod=pod))
    assert code == 0, output
    arguments, greeting, init, cwd = json.loads(here.log("words", 0))
    data = here.run("words") / "volumes" / "images"
    assert arguments == [f"--data={data}/set", "0/1", "$(HOME)", "$(NODE_RANK)", "/database"]
    assert greeting == "I am 0"
    assert init.startswith("tcp://127.0.0.1:")
    assert Path(cwd) == here.directory
    assert data.is_dir()
    assert f"/data is {data} here" in output


def test_a_script_reads_and_writes_files_where_ddpjob_run_is_called_and_finds_them_when_it_goes_on(
    here: Here,
) -> None:
    for name, text in {"data/x.txt": "data", "conf/x.yaml": "lr: 1", "run.sh": 'exec python train.py "$@"'}.items():
        (here.directory / name).parent.mkdir(exist_ok=True)
        (here.directory / name).write_text(text)
    (here.directory / "train.py").write_text(SNAPSHOTS)
    command = ["bash", "run.sh", "--config=conf/x.yaml"]
    file = here.job("own", *command, nodes=2, restart={"maxRestarts": 0})
    code, output = here.ddpjob("run", file)
    assert code == 3, output
    assert (here.directory / "snapshot-0").exists()
    (here.directory / "elsewhere").mkdir()
    elsewhere = replace(here, directory=here.directory / "elsewhere")
    code, output = elsewhere.ddpjob("run", file, "--run-dir", here.directory / "ddpjob-runs")
    assert code == 0, output
    assert f"the ranks run in {here.directory}, where this run was first started" in output
    assert [f"[rank {rank}] goes on" in output for rank in range(2)] == [True, True]


SNAPSHOTS = """
import os, pathlib, sys
assert open("data/x.txt").read() + open(sys.argv[1].removeprefix("--config=")).read() == "datalr: 1"
snapshot = pathlib.Path("snapshot-" + os.environ["RANK"])
print("goes on" if snapshot.exists() else "begins", flush=True)
if not snapshot.exists():
    snapshot.touch()
    while not all(pathlib.Path(f"snapshot-{rank}").exists() for rank in range(2)):
        pass
    sys.exit(3)
"""
"""A script of somebody who runs it with torchrun: paths are those of the shell, and ranks share files."""


def test_a_free_port_is_chosen_where_the_wanted_one_is_taken(here: Here) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = here.job("port", *script("print(os.environ['MASTER_PORT'])"), network={"masterPort": port}, nodes=2)
        code, output = here.ddpjob("run", file)
    assert code == 0, output
    chosen = {here.log("port", rank).strip() for rank in range(2)}
    assert len(chosen) == 1
    assert chosen != {str(port)}
    assert set(map(int, chosen)) <= set(PORTS), "which the system gives to nobody by itself"
    assert re.search(rf"ports? {port}\b.* taken; using ", output), output


def test_two_jobs_at_once_never_meet_on_one_port(here: Here) -> None:
    body = "print(os.environ['MASTER_PORT'], flush=True)\ntime.sleep(1000)"
    files = [here.job(name, *script(body), network={"masterPort": 29731}) for name in ("one", "two")]
    runs = [here.start("run", file) for file in files]
    ports = [here.wait(f"{name}'s port", lambda name=name: here.log(name, 0)) for name in ("one", "two")]
    assert len(set(ports)) == 2
    for run in runs:
        run.send_signal(signal.SIGINT)
    for run in runs:
        run.communicate(timeout=patience(60))


REPORTS = (
    "pathlib.Path(os.environ['DDPJOB_TERMINATION_LOG']).write_text(json.dumps(dict("
    "cause='Application', exception='RuntimeError', message='bad batch', step=7))); sys.exit(1)"
)
TABLE = pytest.mark.full("tests/unit/engine/test_failing has every cause, and other ends here are real")


@pytest.mark.parametrize(
    ("body", "cause", "code", "message"),
    [
        pytest.param("sys.exit(3)", "Application", 3, "exit code 3", marks=TABLE),
        ("raise ValueError('no layer [/head] [0]')", "Application", 1, "ValueError: no layer [/head] [0]"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "Application", 137, "killed by SIGKILL"),
        pytest.param(
            *(
                "print('c10d: Connection reset by peer'); sys.exit(1)",
                "PeerLost",
                1,
                "c10d: Connection reset by peer",
            ),
            marks=TABLE,
        ),
        (REPORTS, "Application", 1, "RuntimeError: bad batch"),
    ],
    ids=["exit code", "exception", "signal", "lost peer", "failure report"],
)
def test_a_job_that_uses_up_its_budget_fails_and_says_who_failed_first_and_why(
    here: Here, body: str, cause: str, code: int, message: str
) -> None:
    body = f"if os.environ['RANK'] == '1':\n    {body}\ntime.sleep(1000)"
    restart = {"maxRestarts": 1, "backoffSeconds": 0}
    returned, output = here.ddpjob("run", here.job("sad", *script(body), nodes=2, restart=restart))
    status = here.status("sad")
    assert status["state"] == "Failed", output
    failure = status["incidents"][0]
    assert returned == code, output
    assert status["state"] == "Failed"
    assert (status["attempt"], status["restarts"]) == (2, 1)
    assert (failure["node"], failure["cause"], failure["exitCode"]) == (1, cause, code)
    assert failure["message"] == message
    assert "ddpjob logs sad --node 1" in output
    assert all(message in said for said in (output, here.says("status", "sad")[1]))
    assert here.processes("sad") == []


def test_under_torchrun_the_rank_that_failed_first_is_named_and_how_it_ended(here: Here) -> None:
    body = "if os.environ['RANK'] == '1':\n    sys.exit(7)\ntime.sleep(1000)"
    command = [str(BIN / "torchrun"), "--no-python", *script(body)]
    code, output = here.ddpjob("run", here.job("elastic", *command, procsPerNode=2, restart={"maxRestarts": 0}))
    failure = here.status("elastic")["incidents"][0]
    assert (failure["node"], failure["rank"], failure["exitCode"], failure["message"]) == (0, 1, 7, "exit code 7")
    assert code == 7, output
    assert "elastic: Failed. Rank 1 (node 0) failed: Application: exit code 7;" in output


def test_what_cannot_succeed_is_tried_twice(here: Here) -> None:
    returned, output = here.ddpjob("run", here.job("hopeless", *script("import no_such_module"), nodes=1))
    status = here.status("hopeless")
    assert (returned, status["state"], status["attempt"], status["restarts"]) == (1, "Failed", 2, 1), output
    assert "No module named 'no_such_module'; the same error twice in a row before the first" in status["message"]
    assert status["message"] in output


def test_what_cannot_be_started_fails_at_once(here: Here) -> None:
    code, output = here.ddpjob("run", here.job("typo", "pyhton", "train.py", nodes=2))
    assert code == 128, output
    assert here.status("typo")["restarts"] == 0
    assert "cannot run 'pyhton' on this machine: No such file or directory" in output


def test_a_rank_that_is_stopped_and_deaf_does_not_outlive_the_deadline(here: Here) -> None:
    body = "os.kill(os.getpid(), signal.SIGSTOP)"
    file = here.job("deaf", *script(body), nodes=2, activeDeadlineSeconds=1, pod={"terminationGracePeriodSeconds": 1})
    code, output = here.ddpjob("run", file)
    status = here.status("deaf")
    assert code == 124, output
    assert status["state"] == "Failed"
    assert {condition["type"]: condition["reason"] for condition in status["conditions"]}[
        "Failed"
    ] == "DeadlineExceeded"
    assert here.processes("deaf") == []


def test_no_process_outlives_its_pod_even_in_a_session_of_its_own(here: Here) -> None:
    body = "subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    code, output = here.ddpjob("run", here.job("litter", *script(body)))
    assert code == 0, output
    assert here.processes("litter") == []
