"""`ddpjob.run`: functions and scripts on this machine, with their results and their errors, from Python."""

import json
import signal
import textwrap

from docs.generator.library import public_names
from tests.local.here import Here, without_torch
from tests.support.waiting import patience

PROGRAM = '''
import os
import pathlib
import signal
import sys
import ddpjob
from beside import helpers

def train(how, lr=0.1, where=None):
    """The function of a user."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if how == "fails" and rank == 1:
        raise KeyError(helpers.NAME)
    if how == "none":
        return object() if rank == 0 else None
    if how == "large":
        return "x" * 500_000
    return {"lr": helpers.double(lr), "world": world, "rank": rank, "where": where} if rank == 0 else object()

options = {"procs_per_node": 2, "start_method": "cold", "max_restarts": 0}
def run(how, **more):
    return ddpjob.run(train, {"how": how, "lr": 0.5, "where": pathlib.Path("/data")}, **options | more)
'''
ENDS = """
if __name__ == "__main__":
    before = signal.getsignal(signal.SIGINT)
    print("result", run("works", quiet=True))
    assert signal.getsignal(signal.SIGINT) is before
    for how in ("fails", "none"):
        try:
            run(how, quiet=True)
        except ddpjob.RankFailed as failed:
            print("failed", failed.rank, failed.cause, failed)
            print(failed.remote_traceback)
    print("large", len(run("large", history="history", quiet=True)))
    print("without a history", len(run("large", quiet=True)))
    pathlib.Path("script.py").write_text("import ddpjob, sys\\nddpjob.set_result(sys.argv[1:])\\n")
    print("script", ddpjob.run("script.py", args=["--lr", 0.1], quiet=True, start_method="cold"))
"""


def beside(here: Here) -> None:
    (here.directory / "beside").mkdir()
    (here.directory / "beside" / "helpers.py").write_text('NAME = "the key"\ndef double(x):\n    return 2 * x\n')


def test_a_function_gives_its_result_and_its_error(here: Here) -> None:
    beside(here)
    done = here.python(PROGRAM + ENDS)
    output, _ = done.communicate(timeout=patience(150))
    assert done.returncode == 0, output + here.evidence()
    lines = output.splitlines()
    assert "result {'lr': 1.0, 'world': 2, 'rank': 0, 'where': '/data'}" in lines, output
    assert "failed 1 Application train-2 has failed: Rank 1" in output, output
    line = next(number for number, line in enumerate((PROGRAM + ENDS).splitlines(), 1) if "raise KeyError" in line)
    begin = lines.index("Traceback (most recent call last):")
    assert lines[begin + 1] == f'  File "{here.directory}/program.py", line {line}, in train', output
    assert lines[begin + 2] == "    raise KeyError(helpers.NAME)"
    assert "KeyError: 'the key'" in lines
    assert "failed 0 ConfigError" in output
    assert "train returned no result: result is of type object, which is not JSON" in output
    assert "function_call.py" not in output, "a traceback of ours would say nothing more"
    assert "large 500000" in lines
    assert "without a history 500000" in lines
    assert "script ['--lr', '0.1']" in lines
    assert here.status("train")["result"] == '{"lr":1.0,"world":2,"rank":0,"where":"/data"}'
    assert "result" not in here.status("train-4")
    place = here.status("train-4")["resultPlace"]
    head, record = (here.directory / "history" / place).read_text().splitlines()
    assert json.loads(head)["name"] == "train-4"
    assert len(json.loads(record)["result"]) == 500_000


STOPS = """
def train():
    import time
    print("begins", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    try:
        ddpjob.run(train, start_method="cold")
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ctrl_c_stops_the_run_and_tells_how_to_go_on(here: Here) -> None:
    running = here.python("import ddpjob\n" + STOPS)
    here.wait("the rank to begin", lambda: "begins" in here.log("train", 0))
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=patience(60))
    assert running.returncode == 0, output
    assert "stopped" in output.splitlines()
    assert "run --resume train" in output


EXAMPLE = next(example for name in public_names() if name.name == "run" for example in name.examples)
AT_ONCE = f"""
import concurrent.futures
import ddpjob

def example(number):
{textwrap.indent(EXAMPLE, "    ")}
    return result

if __name__ == "__main__":
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print("results", [*pool.map(example, range(2))])
"""


def test_the_example_of_the_reference_runs_in_threads_at_the_same_time(here: Here) -> None:
    (here.directory / "mymodel.py").write_text("def train(lr):\n    return lr\n")
    without_torch(here.directory)
    done = here.python(AT_ONCE)
    output, _ = done.communicate(timeout=patience(150))
    assert done.returncode == 0, output + here.evidence()
    assert "results [0.1, 0.1]" in output
    assert {here.status(name)["result"] for name in ("train", "train-2")} == {"0.1"}
