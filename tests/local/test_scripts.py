"""`ddpjob run` with a script of one's own, and no YAML file."""

from tests.local.here import Here, script, without_torch

SCRIPT = """
import os, pathlib, sys, time

rank, saved = os.environ["RANK"], pathlib.Path(os.environ["DDPJOB_CHECKPOINT_DIR"]) / os.environ["RANK"]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} with {sys.argv[1:]}, saved {saved.exists()}", flush=True)
saved.touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


def test_a_script_is_a_new_run_each_time_and_goes_on_by_its_name_from_any_directory(here: Here) -> None:
    without_torch(here.directory)
    (here.directory / "train.py").write_text(SCRIPT)
    first = here.start("run", "train.py", "--nodes", "2", "--procs-per-node", "2", "--", "--lr", "$(HOME)")
    here.wait("all ranks", lambda: [here.log("train", node).count("saved False") for node in (0, 1)] == [2, 2])
    assert "rank 3 of 4 with ['--lr', '$(HOME)']" in here.log("train", 1)

    (here.directory / "elsewhere").mkdir()
    elsewhere = Here(here.directory / "elsewhere", started=here.started)
    code, output = elsewhere.ddpjob("stop", "train", **here.state)
    unknown = "No step or checkpoint is known: if it has trained, it starts over, unless it finds what it saved.\n"
    said = f"{unknown}Go on with: ddpjob run --resume train\n"
    assert (code, output) == (0, f"train: Suspended. Nothing runs until the job is resumed\n{said}")
    code, output = elsewhere.ddpjob("ls", **here.state, COLUMNS="300")
    assert (code, output.split()[-1]) == (0, str(here.run("train"))), output
    output, _ = first.communicate()
    assert first.returncode == 130, output
    assert output.endswith(said), output

    taken = here.says("run", "train.py", "--name", "train")
    assert taken[0] == 2
    assert "there is a run named train already. Go on with it: ddpjob run --resume train" in taken[1]

    (here.directory / "go").touch()
    code, output = elsewhere.ddpjob("run", "--resume", "train", **here.state)
    assert code == 0, output
    assert "saved True" in here.log("train", 0, attempt=2)
    code, output = elsewhere.ddpjob("logs", "train", "--node", "1", **here.state)
    assert (code, "[node 1] rank 2 of 4" in output) == (0, True), output

    (here.directory / "go").unlink()
    assert here.ddpjob("run", "--detach", "train.py", "--name", "train")[0] == 2
    code, output = here.ddpjob("run", "--detach", "train.py")
    assert (code, output.startswith("train-2: 1 node x 1 process")) == (0, True), output
    assert output.endswith("Stop it with: ddpjob stop train-2\n"), output
    here.wait("the rank", lambda: "rank 0 of 1" in here.log("train-2", 0))
    (here.directory / "go").touch()
    here.wait("its end", lambda: here.status("train-2").get("state") == "Succeeded")
    output_log = here.run("train-2") / "output.log"
    here.wait("its output", lambda: "[rank 0] rank 0 of 1" in output_log.read_text())

    here.wait("its process to end", lambda: here.says("rm", "train-2")[0] == 0)
    assert (here.run("train").exists(), here.run("train-2").exists()) == (True, False)


def test_what_goes_on_without_its_ddpjob_run_is_stopped_too(here: Here) -> None:
    first = here.start("run", here.job("left", *script("pathlib.Path('runs').touch(); time.sleep(1000)")))
    here.wait("the rank", (here.directory / "runs").exists)
    first.kill()
    first.wait()
    code, output = here.ddpjob("stop", "left")
    assert (code, output.splitlines()[-1]) == (0, "Go on with: ddpjob run --resume left"), output
    assert here.processes("left") == []


LOUD = r"""
print(("x" * 1000 + "\n") * 2000, flush=True)
time.sleep(600)
"""


def test_a_run_whose_output_is_blocked_is_stopped_as_any_other(here: Here) -> None:
    run = here.start("run", here.job("blocked", *script(LOUD)))
    here.wait("more than a pipe holds", lambda: len(here.log("blocked", 0)) > 1_000_000)
    code, output = here.ddpjob("stop", "blocked")
    assert (code, output.splitlines()[-1]) == (0, "Go on with: ddpjob run --resume blocked"), output
    assert run.wait() == 130
    assert here.processes("blocked") == []
