"""What local mode survives: dead ranks, dead containers, its own death, and people in a hurry."""

import json
import signal
import sys

import pytest

from tests.local.here import Here, alive, script
from tests.support.waiting import patience

ENDLESS = "print('up', flush=True)\ntime.sleep(1000)"
SAVES = (
    "def stop(*_):\n    print('saved', flush=True)\n    sys.exit(205)\n"
    "signal.signal(signal.SIGTERM, stop)\nprint('up', flush=True)\n"
    "while not pathlib.Path(sys.argv[1]).exists():\n    time.sleep(0.02)"
)


def up(here: Here, name: str, attempt: int, nodes: int = 2) -> bool:
    """Whether all ranks of an attempt have said so."""
    return all("up" in here.log(name, rank, attempt) for rank in range(nodes))


def test_a_killed_rank_takes_the_whole_gang_into_a_new_attempt(here: Here) -> None:
    run = here.start("run", here.job("kill", *script(ENDLESS), nodes=2, restart={"backoffSeconds": 0}))
    here.wait("the first attempt", lambda: up(here, "kill", 1))
    first = here.trainers("kill")
    first[1].kill()
    here.wait("the second attempt", lambda: up(here, "kill", 2))
    second = here.trainers("kill")
    assert not alive(first[0])
    assert {process.pid for process in first.values()}.isdisjoint(process.pid for process in second.values())
    status = here.wait("a running job", lambda: s if (s := here.status("kill"))["state"] == "Running" else None)
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (2, 1, 0)
    assert (status["incidents"][0]["node"], status["incidents"][0]["signal"]) == (1, "SIGKILL")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=patience(60))


def test_a_container_that_is_killed_from_outside_is_a_disruption_and_leaves_no_process(here: Here) -> None:
    body = "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n" + ENDLESS
    run = here.start("run", here.job("lost", *script(body), nodes=2, restart={"backoffSeconds": 0}))
    here.wait("the first attempt", lambda: up(here, "lost", 1))
    first = here.processes("lost")
    here.trainers("lost")[0].parent().kill()  # type: ignore[union-attr]
    here.wait("the second attempt", lambda: up(here, "lost", 2))
    status = here.status("lost")
    assert (status["restarts"], status["disruptions"]) == (0, 1)
    assert status["incidents"][0]["cause"] == "PodDeleted"
    assert [process for process in first if alive(process)] == []
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=patience(60))


def test_a_killed_ddpjob_run_is_taken_up_by_the_next_one_without_a_restart(here: Here) -> None:
    done = here.directory / "done"
    file = here.job("taken", *script(SAVES), str(done), nodes=2)
    first = here.start("run", file)
    here.wait("the first attempt", lambda: up(here, "taken", 1))
    before = here.trainers("taken")
    first.kill()
    first.communicate()
    second = here.start("run", file)
    here.wait("the second ddpjob run", lambda: second.pid == int((here.run("taken") / "lock").read_text() or 0))
    done.touch()
    output, _ = second.communicate(timeout=patience(60))
    assert second.returncode == 0, output
    assert here.status("taken")["attempt"] == 1
    assert not any(alive(process) for process in before.values())
    assert here.processes("taken") == []


def test_an_end_that_came_while_nobody_looked_is_found(here: Here) -> None:
    done = here.directory / "done"
    file = here.job("unseen", *script(SAVES), str(done), nodes=2)
    first = here.start("run", file)
    here.wait("the first attempt", lambda: up(here, "unseen", 1))
    first.kill()
    first.communicate()
    done.touch()
    here.wait("the end of all processes", lambda: not here.processes("unseen"))
    code, output = here.ddpjob("run", file)
    assert code == 0, output
    assert here.status("unseen")["attempt"] == 1


BETWEEN = pytest.mark.full("the moments before and after it are tried here")


@pytest.mark.parametrize("moment", [pytest.param(moment, marks=BETWEEN if moment % 2 else ()) for moment in range(8)])
def test_a_ddpjob_run_killed_at_any_moment_leaves_neither_orphan_nor_duplicate(here: Here, moment: int) -> None:
    done = here.directory / "done"
    file = here.job("any", *script(SAVES), str(done), nodes=3)
    first = here.start("run", file)
    sights = [
        (here.run("any") / "job.json").exists,
        (here.run("any") / "service.json").exists,
        *(lambda count=count: len(list(here.run("any").glob("pods/*/pod.json"))) >= count for count in (1, 2, 3)),
        *(lambda count=count: len(list(here.run("any").glob("pods/*/started.json"))) >= count for count in (1, 2, 3)),
    ]
    here.wait(f"moment {moment}", sights[moment])
    first.kill()
    first.communicate()
    second = here.start("run", file)
    here.wait("a whole gang", lambda: here.status("any").get("state") == "Running" and up(here, "any", 1, nodes=3))
    assert sorted(here.trainers("any")) == [0, 1, 2]
    assert len([one for one in here.processes("any") if "container.py" not in " ".join(one.cmdline())]) == 3
    done.touch()
    output, _ = second.communicate(timeout=patience(60))
    assert second.returncode == 0, output
    assert here.processes("any") == []


def test_ctrl_c_lets_the_ranks_save_and_the_next_run_goes_on(here: Here) -> None:
    done = here.directory / "done"
    file = here.job("pause", *script(SAVES), str(done), nodes=2)
    run = here.start("run", file)
    here.wait("the first attempt", lambda: up(here, "pause", 1))
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 130, output
    assert all("saved" in here.log("pause", rank) for rank in range(2))
    assert here.status("pause")["state"] == "Suspended"
    assert "Go on with: ddpjob run --resume pause" in output
    assert here.processes("pause") == []
    done.touch()
    code, output = here.ddpjob("run", file)
    status = here.status("pause")
    assert code == 0, output
    assert (status["attempt"], status["restarts"]) == (2, 0)


def test_a_second_ctrl_c_stops_at_once(here: Here) -> None:
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS
    run = here.start("run", here.job("hurry", *script(body), nodes=2, pod={"terminationGracePeriodSeconds": 1000}))
    here.wait("the first attempt", lambda: up(here, "hurry", 1))
    run.send_signal(signal.SIGINT)
    here.wait("the deletion", lambda: len(list(here.run("hurry").glob("pods/*/delete.json"))) == 2)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=patience(60))  # The first one gives more grace than that.
    assert run.returncode == 130, output
    assert here.processes("hurry") == []


def test_a_job_that_runs_already_is_not_run_twice(here: Here) -> None:
    file = here.job("once", *script(ENDLESS))
    run = here.start("run", file)
    here.wait("the first attempt", lambda: up(here, "once", 1, nodes=1))
    code, output = here.ddpjob("run", file)
    assert (code, output.splitlines()) == (
        2,
        [f"error: once is running already (process {run.pid}); look at it with: ddpjob status once"],
    )
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=patience(60))


def test_a_changed_template_takes_effect_after_the_old_processes_have_saved(here: Here) -> None:
    done = here.directory / "done"
    first = here.start("run", here.job("change", *script(SAVES), str(done), nodes=2))
    here.wait("the first attempt", lambda: up(here, "change", 1))
    first.kill()
    first.communicate()
    code, output = here.ddpjob("run", here.job("change", *script("print('new')"), nodes=2))
    assert code == 0, output
    assert all("saved" in here.log("change", rank, 1) for rank in range(2))
    assert all(here.log("change", rank, 2) == "new\n" for rank in range(2))


def test_another_number_of_nodes_is_a_restart_that_costs_nothing(here: Here) -> None:
    done = here.directory / "done"
    first = here.start("run", here.job("size", *script(SAVES), str(done), nodes=3))
    here.wait("the first attempt", lambda: up(here, "size", 1, nodes=3))
    first.kill()
    first.communicate()
    second = here.start("run", here.job("size", *script(SAVES), str(done), nodes=2))
    here.wait("the second attempt", lambda: up(here, "size", 2))
    status = here.wait("a running job", lambda: s if (s := here.status("size"))["state"] == "Running" else None)
    assert (status["nodes"], status["display"]["ready"], status["restarts"], status["disruptions"]) == (
        2,
        "2/2",
        0,
        0,
    )
    assert all("saved" in here.log("size", rank, 1) for rank in range(3))
    done.touch()
    output, _ = second.communicate(timeout=patience(60))
    assert second.returncode == 0, output


def test_finished_means_finished_and_fresh_begins_anew(here: Here) -> None:
    file = here.job("again", sys.executable, "-c", "print('ran')")
    assert here.ddpjob("run", file)[0] == 0
    code, output = here.ddpjob("run", file)
    assert (code, "has succeeded already" in output, "--fresh" in output) == (0, True, True)
    here.job("again", sys.executable, "-c", "print('ran')", nodes=2, backend="Auto")
    said = f"again has succeeded, and {file} has changed since: nodes. Start over with: ddpjob run --fresh {file}"
    assert here.ddpjob("run", file) == (2, f"error: {said}\n")
    here.job("again", sys.executable, "-c", "print('ran')")
    code, output = here.ddpjob("run", "--fresh", file)
    assert code == 0
    assert "[rank 0] ran" in output


def test_a_failed_job_runs_anew_and_leaves_the_old_one_as_evidence(here: Here) -> None:
    restart = {"maxRestarts": 0}
    assert here.ddpjob("run", here.job("retry", *script("sys.exit('bad')"), restart=restart))[0] == 1
    code, output = here.ddpjob("run", here.job("retry", *script("print('good')"), restart=restart))
    assert code == 0, output
    former = list(here.run("retry").glob("former-*/logs/attempt-1/node-0.log"))
    assert [file.read_text() for file in former] == ["bad\n"]


def test_status_says_when_nobody_carries_the_job_on(here: Here) -> None:
    run = here.start("run", here.job("alone", *script(ENDLESS)))
    here.wait("the first attempt", lambda: up(here, "alone", 1, nodes=1))
    said = "No ddpjob run is in charge of this job"
    assert said not in here.says("status")[1]
    run.kill()
    run.communicate()
    assert said in here.says("status")[1]


def test_logs_follow_a_job_through_its_restarts_to_its_end(here: Here) -> None:
    body = "print('attempt', os.environ['DDPJOB_INCARNATION'], flush=True)\n" + SAVES
    done = here.directory / "done"
    run = here.start("run", here.job("tail", *script(body), str(done), nodes=2, restart={"backoffSeconds": 0}))
    here.wait("the first attempt", lambda: up(here, "tail", 1))
    follower = here.start("logs", "--follow", "--node", "1")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "[rank 1] attempt 1\n"
    here.trainers("tail")[0].kill()
    here.wait("the second attempt", lambda: up(here, "tail", 2))
    assert here.says("logs", "--previous", "--node", "1")[1].startswith("[rank 1] attempt 1\n")
    done.touch()
    assert run.wait(timeout=patience(60)) == 0
    output, _ = follower.communicate(timeout=patience(60))
    assert [line for line in output.splitlines() if "attempt" in line] == ["[rank 1] attempt 2"]


def test_pods_that_are_told_to_end_while_they_start_end(here: Here) -> None:
    body = "sys.exit(1) if os.environ['NODE_RANK'] == '0' else time.sleep(1000)"
    restart = {"maxRestarts": 8, "backoffSeconds": 0, "gracePeriodSeconds": 0}
    code, output = here.ddpjob("run", here.job("early", *script(body), nodes=8, restart=restart))
    assert code == 1, output
    assert here.status("early")["attempt"] == 9
    assert here.processes("early") == []


def test_when_ctrl_c_takes_the_reader_of_the_output_too_the_job_is_suspended_all_the_same(here: Here) -> None:
    body = (
        "def save(*_):\n    time.sleep(1)\n    print('saved', flush=True)\n    sys.exit(205)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "while True:\n    print('on', flush=True)\n    time.sleep(0.1)"
    )
    file = here.job("unread", *script(body), nodes=2)
    run = here.start("run", file)
    assert run.stdout is not None
    for rank in range(2):  # Each saves only once it listens to signals.
        here.wait(f"rank {rank}", lambda rank=rank: "on" in here.log("unread", rank))
    assert any("[rank 0] on" in line for line in run.stdout)
    run.stdout.close()  # As of `| tee log`.
    run.send_signal(signal.SIGINT)
    here.wait("the end", lambda: run.poll() is not None)
    assert run.returncode == 130
    assert [here.log("unread", rank).splitlines()[-1] for rank in range(2)] == ["saved", "saved"]
    assert here.status("unread")["state"] == "Suspended"
    assert here.processes("unread") == []


def test_a_failed_job_that_was_half_set_aside_runs_anew(here: Here) -> None:
    file = here.job("half", *script("sys.exit('bad')"), restart={"maxRestarts": 0})
    assert here.ddpjob("run", file)[0] == 1
    uid = json.loads((here.run("half") / "job.json").read_text())["metadata"]["uid"]
    aside = here.run("half") / f"former-{uid[:8]}"
    aside.mkdir()
    (here.run("half") / "logs").rename(aside / "logs")
    code, output = here.ddpjob("run", here.job("half", *script("print('good')")))
    assert code == 0, output
    assert (aside / "job.json").exists()
