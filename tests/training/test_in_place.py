"""Restarts in place: supervisors on several loopback addresses, real ranks of a plain script, real SIGKILL."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ddpjob_supervisor.page.document import fingerprint

from tests.training.gang import Gang, a_gang

LONG = "1000000"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with a_gang(tmp_path, 2) as gang:
        yield gang


def test_when_a_rank_is_killed_all_begin_the_next_attempt_and_every_supervisor_stays(gang: Gang) -> None:
    gang.start("train.py", LONG)
    first = gang.await_steps(1, least=3)
    gang.ranks(1)[0].send_signal(signal.SIGKILL)
    second = gang.await_steps(2)
    assert {step.pid for step in first.values()}.isdisjoint(step.pid for step in second.values())
    assert all(supervisor.poll() is None for supervisor in gang.supervisors.values())
    late = [
        step for step in gang.steps() if step.attempt == 1 and step.time > min(one.time for one in second.values())
    ]
    assert not late, "a rank of the first attempt made a step while the second one ran"


def test_when_a_node_is_lost_the_other_waits_in_place_for_the_one_that_replaces_it(gang: Gang) -> None:
    gang.start("train.py", LONG)
    gang.await_steps(1, least=3)
    gang.kill_node(1)
    gang.start_node(1, "train.py", LONG, attempt=2)
    gang.await_steps(2)
    assert gang.supervisors[0].poll() is None


def test_a_rank_that_fails_while_another_node_still_imports_waits_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import time; time.sleep(3600)")
    with a_gang(tmp_path, 2, DDPJOB_LEAVE_TO_OPERATOR="3") as gang:
        (tmp_path / "fail.py").write_text("raise SystemExit(3)")
        gang.start_node(0, "fail.py")
        gang.start_node(1, "--preload", "endless", "fail.py")
        assert gang.ends() == [3, 204]


def test_a_new_rank_0_announces_itself_to_those_that_live_and_the_attempts_go_on(tmp_path: Path) -> None:
    with a_gang(tmp_path, 3) as gang:
        gang.start("train.py", LONG)
        gang.await_steps(1, least=3)
        gang.ranks(2)[0].send_signal(signal.SIGKILL)
        gang.await_steps(2, least=3)
        gang.kill_node(0)
        gang.start_node(0, "train.py", LONG, attempt=2, peers=f"{gang.control(1)},{gang.control(2)}")
        gang.await_steps(3)
        assert all(gang.supervisors[node].poll() is None for node in range(3))


def test_all_end_well_once_all_ranks_are_done(gang: Gang) -> None:
    gang.start("train.py", "20")
    assert gang.ends() == [0, 0]


def test_what_is_left_to_the_operator_ends_every_pod_and_each_says_why(tmp_path: Path) -> None:
    with a_gang(tmp_path, 2, DDPJOB_LEAVE_TO_OPERATOR="137") as gang:
        gang.start("train.py", LONG)
        gang.await_steps(1, least=3)
        gang.ranks(1)[0].send_signal(signal.SIGKILL)
        assert gang.ends() == [204, 137]
        assert (gang.report(1)["cause"], gang.report(1)["message"]) == ("Application", "killed by SIGKILL")
        assert gang.report(0)["cause"] == "PeerLost"
        assert gang.report(0)["incident"]["node"] == 1
        assert gang.report(0)["incident"]["message"] == "killed by SIGKILL"


def test_a_stopped_rank_is_found_out_named_and_replaced(tmp_path: Path) -> None:
    with a_gang(tmp_path, 2, DDPJOB_STALL_TIMEOUT_SECONDS="3") as gang:
        gang.start("train.py", LONG)
        gang.await_steps(1, least=20)
        gang.ranks(1)[0].send_signal(signal.SIGSTOP)
        gang.await_steps(2)
        incident = gang.status()["incidents"][-1]
        assert (incident["cause"], incident["node"], incident["attempt"]) == ("Stalled", 1, 1)
        assert incident["message"] == "rank 1 did not enter the collective: it is stopped (state T)"
        assert "train.py" in gang.log(0), "the stack of the rank that waits is in its log"


def placed(directory: Path, *domains: str) -> None:
    """Each node's file says in which topology domain it is."""
    for node, domain in enumerate(domains):
        (directory / f"domain-{node}").write_text(domain)


def start_placed(gang: Gang, node: int, *words: str, **how: Any) -> None:
    """Starts the supervisor of a node that has such a file."""
    gang.start_node(node, *words, DDPJOB_TOPOLOGY_DOMAIN_FILE=str(gang.directory / f"domain-{node}"), **how)


def test_ranks_follow_placement_and_one_that_is_killed_is_blamed_on_its_node(tmp_path: Path) -> None:
    placed(tmp_path, "a", "b", "a")
    with a_gang(tmp_path, 3) as gang:
        for node in range(3):
            start_placed(gang, node, "train.py", LONG)
        first = gang.await_steps(1, least=3)
        assert {rank: node_of(gang, step.pid) for rank, step in first.items()} == {0: 0, 1: 2, 2: 1}
        assert gang.status()["order"] == [0, 2, 1]
        gang.wait("its page to say the same", lambda: shown(gang) == {0: 0, 1: 2, 2: 1})
        psutil.Process(first[1].pid).send_signal(signal.SIGKILL)
        gang.await_steps(2)
        incident = gang.status()["incidents"][-1]
        assert (incident["node"], incident["rank"], incident["message"]) == (2, 1, "killed by SIGKILL")
        assert "attempt 2 begins in place: rank 1 (node 2) failed" in gang.log(1)
        assert "attempt 2: node 2 has rank 1" in gang.log(2)


def test_a_node_that_moves_changes_the_order_of_the_next_attempt(tmp_path: Path) -> None:
    placed(tmp_path, "a", "b", "a")
    with a_gang(tmp_path, 3) as gang:
        for node in range(3):
            start_placed(gang, node, "train.py", LONG)
        gang.await_steps(1, least=3)
        gang.kill_node(1)
        placed(tmp_path, "a", "a", "a")
        start_placed(gang, 1, "train.py", LONG, attempt=2)
        second = gang.await_steps(2)
        assert {rank: node_of(gang, step.pid) for rank, step in second.items()} == {0: 0, 1: 1, 2: 2}
        assert "order" not in gang.status()


def test_where_one_supervisor_knows_nothing_of_placement_ranks_stay_where_they_are(tmp_path: Path) -> None:
    placed(tmp_path, "a", "b", "a")
    with a_gang(tmp_path, 3) as gang:
        for node in (0, 2):
            start_placed(gang, node, "train.py", LONG)
        gang.start_node(1, "train.py", LONG)
        gang.await_steps(1)
        assert "order" not in gang.status()


def node_of(gang: Gang, pid: int) -> int:
    """The node whose supervisor a process belongs to."""
    above = {parent.pid for parent in psutil.Process(pid).parents()}
    return next(node for node, supervisor in gang.supervisors.items() if supervisor.pid in above)


def shown(gang: Gang) -> dict[int, int]:
    """The node of each rank, as rank 0's supervisor shows it."""
    return {one["rank"]: one["node"] for one in gang.status()["ranks"]}


SAVES = """
import os, signal, sys
from ddpjob_trainer.main import main
from ddpjob_trainer.checkpoint import state

of_rank = state.of_rank

def stop_first(learner):
    if (os.environ["RANK"], os.environ["DDPJOB_ATTEMPT"]) == ("1", "1"):
        os.kill(os.getpid(), signal.SIGSTOP)
    return of_rank(learner)

state.of_rank = stop_first
sys.argv = "ddpjob-train --workload=mlp --epochs=10000 --checkpoint-dir=saves --checkpoint-every-steps=9".split()
main()
"""
"""Trains, and stops rank 1 where it would tell rank 0 what is its own in the first checkpoint."""


def test_a_rank_that_is_stopped_as_all_begin_to_save_is_missed_as_soon_as_in_a_step(tmp_path: Path) -> None:
    with a_gang(tmp_path, 2, DDPJOB_STALL_TIMEOUT_SECONDS="3") as gang:
        (tmp_path / "save.py").write_text(SAVES)
        gang.start("save.py")
        gang.wait("its page", gang.is_heard)
        gang.wait("an incident", lambda: bool(gang.status()["incidents"]))
        incident = gang.status()["incidents"][-1]
        assert (incident["cause"], incident["node"], incident["step"]) == ("Stalled", 1, 9), incident
        assert incident["message"] == "rank 1 did not enter the collective: it is stopped (state T)"


def test_a_node_joins_while_it_is_looked_at_and_heeds_a_request_meanwhile(tmp_path: Path) -> None:
    with a_gang(tmp_path, 2, DDPJOB_PREFLIGHT="Fast", MASTER_ADDR="nowhere.invalid") as gang:
        gang.start_node(0, "train.py", LONG, attempt=7)
        gang.wait("its page", gang.is_heard)
        said = gang.status()
        assert (said["phase"], said["missing"], said["attempt"]) == ("Gathering", [1], 7), (
            "what the operator waits for"
        )
        gang.start_node(1, "train.py", LONG, attempt=7)
        gang.wait("all to be there", lambda: gang.status()["phase"] == "Running")
        gang.supervisors[0].send_signal(signal.SIGTERM)
        assert gang.end_of(0) == 128 + signal.SIGTERM
        assert not gang.steps()


def test_the_status_port_tells_what_the_gang_is_doing(gang: Gang) -> None:
    gang.start("train.py", LONG)
    gang.await_steps(1, least=20)
    gang.ranks(0)[0].send_signal(signal.SIGKILL)
    gang.await_steps(2, least=20)
    gang.wait("beats of both ranks in attempt 2", lambda: len(gang.status()["ranks"]) == 2)
    said = gang.status()
    assert {key: said[key] for key in ("job", "nodes", "attempt", "phase", "missing", "inPlaceRestarts")} == {
        "job": fingerprint("a-uid"),
        "nodes": 2,
        "attempt": 2,
        "phase": "Running",
        "missing": [],
        "inPlaceRestarts": 1,
    }
    assert [(one["node"], one["signal"], one["step"], one["message"]) for one in said["incidents"]] == [
        (0, 9, None, "killed by SIGKILL")
    ], "steps that were counted for the script are no position in its training"
    assert {rank["rank"] for rank in said["ranks"]} == {0, 1}
    other = gang.status(1)
    assert (other["attempt"], other["coordinator"]) == (2, gang.control(0))


def test_asked_to_stop_one_node_goes_and_the_other_waits_for_the_one_that_takes_its_place(gang: Gang) -> None:
    gang.start("train.py", LONG)
    gang.await_steps(1, least=3)
    gang.supervisors[1].send_signal(signal.SIGTERM)
    assert gang.end_of(1) == 205, "it was interrupted, and has stopped"
    gang.wait("rank 1 missing", lambda: gang.status()["missing"] == [1])
    assert gang.status()["incidents"] == []
    gang.start_node(1, "train.py", LONG, attempt=2)
    gang.await_steps(2)


SAVES_AT_A_SIGNAL = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("saved", flush=True) or os._exit(0))
note = f"{os.environ['RANK']} 1 {time.time()} {os.environ['DDPJOB_ATTEMPT']} {os.getpid()}\\n"
os.write(os.open(os.environ["STEPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), note.encode())
while True: time.sleep(0.1)
"""


def test_if_rank_0s_node_is_told_to_stop_first_the_others_can_still_save(gang: Gang, tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVES_AT_A_SIGNAL)
    gang.start("saves.py")
    gang.await_steps(1)
    gang.supervisors[0].send_signal(signal.SIGTERM)
    gang.wait("rank 0 to have saved", lambda: "saved" in gang.log(0))
    time.sleep(0.5)  # In which its supervisor would leave, and the other one would kill its rank.
    gang.supervisors[1].send_signal(signal.SIGTERM)
    assert gang.ends() == [205, 205]
    assert "saved" in gang.log(1)


def test_with_no_restart_left_the_pods_end_with_the_exit_code_of_the_rank(tmp_path: Path) -> None:
    with a_gang(tmp_path, 2, DDPJOB_IN_PLACE_RESTARTS="1") as gang:
        gang.start("train.py", LONG)
        for attempt in (1, 2):
            gang.await_steps(attempt, least=20)
            gang.ranks(0)[0].send_signal(signal.SIGKILL)
        assert gang.ends() == [137, 204]
        assert gang.report(0)["attempt"] == 2


def test_a_node_that_is_not_fit_starts_no_rank_and_says_what_would_be_right(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    unfit = str(tmp_path / "file" / "checkpoints")
    with a_gang(tmp_path, 2, DDPJOB_PREFLIGHT="Fast", DDPJOB_CHECKPOINT_DIR=unfit) as gang:
        gang.start("train.py", LONG)
        assert gang.end_of(0) == 202
        assert gang.report(0)["cause"] == "PreflightFailed"
        assert unfit in gang.report(0)["message"]
        assert not gang.steps()


def test_how_far_a_killed_rank_had_come_is_known_where_its_program_tells(tmp_path: Path) -> None:
    with a_gang(tmp_path, 2) as gang:
        train = tmp_path / "train.py"
        tells = "    __import__('ddpjob').report(step=1000 + step)\n    time.sleep(0.01)"
        train.write_text(train.read_text().replace("    time.sleep(0.01)", tells))
        gang.start("train.py", LONG)
        gang.await_steps(1, least=20)
        gang.ranks(1)[0].send_signal(signal.SIGKILL)
        gang.await_steps(2)
        assert gang.status()["incidents"][0]["step"] >= 1019
