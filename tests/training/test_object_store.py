"""Checkpoints on a real S3 server: what it refuses, when it is away or loses an answer, races, and killed writers."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ddpjob
import obstore
import pytest
import torch
from ddpjob.checkpoint import object_store, store_client
from ddpjob.checkpoint.content import Sink
from ddpjob.checkpoint.object_store import ObjectStore
from ddpjob.checkpoint.opening import read_newest
from ddpjob_operator.history import PlaceError, find_history, open_place
from ddpjob_rank.errors import (
    CheckpointMissedError,
    ConfigError,
    StorageUnavailableError,
    SupersededError,
)
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.recording.event import Event
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import open_target
from obstore.exceptions import AlreadyExistsError
from obstore.store import from_url

from tests.local.here import BIN, Here
from tests.support import s3_server
from tests.support.s3_server import Proxy, Trouble, environment
from tests.support.seed import SEED
from tests.support.waiting import patience
from tests.training.gang import a_gang
from tests.training.runs import Runs

TASKS = "tests.training.tasks"
BUCKET = "checkpoints"
KILLS = 4
SHORT_SECONDS = 1.0

# 20 MB: two parts.
WRITER = """
import sys
from pathlib import Path
from ddpjob.checkpoint.object_store import ObjectStore
from ddpjob.checkpoint.opening import read_newest
from ddpjob_rank.errors import CheckpointMissedError
from ddpjob_rank.manifests.manifest import Manifest
checkpoints, attempt = ObjectStore(sys.argv[1], keep=2), int(sys.argv[2])
found = checkpoints.newest(decode=Path.read_bytes)
step = found.manifest.step if found else 0
print(step, flush=True)
while True:
    step += 1
    state = step.to_bytes(4, "big") * 5_000_000
    manifest = Manifest(step, 1, step, 2, 64, "uid", tuple(range(attempt + 1)))
    checkpoints.write(manifest, lambda file: file.write(state))
    print(step, flush=True)
"""


SCRIPT = """
import os, time, torch, ddpjob
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.ones(200, 1))
training = ddpjob.Training(model=model, optimizer=optimizer, loader=loader)
for _ in training.epochs(1):
    for step, x in enumerate(training.batches()):
        if step > 10 and os.environ["DDPJOB_ATTEMPT"] == "1":
            time.sleep(0.5)  # Saves go on beside training.
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        training.step(loss)
"""

# Saves at step 1,000,000, makes steps until a file allows it to end, and saves at 2,000,000.
COUNTS = """
import os, time
from pathlib import Path
import ddpjob, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(100, 100)
checkpoints = ddpjob.Checkpoints(model=model, every_steps=1_000_000)
resumed = checkpoints.resume()
step = resumed.step if resumed else 999_990
assert not resumed or bool((model.weight == step).all())
while step < 2_000_000:
    may_end = torch.tensor([Path("end").exists()])
    dist.all_reduce(may_end, dist.ReduceOp.MAX)
    step = 2_000_000 if may_end else step + 1
    model.weight.data.fill_(step)
    checkpoints.save_if_due(step)
    with open(os.environ["STEPS"], "a") as steps:
        steps.write(f"{dist.get_rank()} {step} {time.time()} {os.environ['DDPJOB_ATTEMPT']} {os.getpid()}\\n")
    time.sleep(0.02)
checkpoints.finish()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("s3-server")
    s3_server.install(directory)
    return directory


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server.serving(installed, tmp_path_factory.mktemp("log") / "log") as port:
        s3_server.make_bucket(port, BUCKET)
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[Proxy]:
    with s3_server.proxied(server) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a place for this test, which is reached through the proxy."""
    for name, value in environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "PART_BYTES", 5 * 1024 * 1024)  # The least that S3 allows.
    return f"s3://{BUCKET}/{request.node.name.partition('[')[0]}-{random.randrange(10**9)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is repeated for a second only."""
    monkeypatch.setattr(store_client, "RETRY_SECONDS", SHORT_SECONDS)


def manifest(attempt: int, step: int, run: str = "") -> Manifest:
    return Manifest(step, 1, step * 64, 2, 64, "uid", tuple(range(attempt + 1)), run=run)


def state(written: bytes) -> Callable[[Sink], object]:
    return lambda file: file.write(written)


def newest(url: str, retry_seconds: float = 0) -> tuple[int, bytes] | None:
    found = ObjectStore(url, keep=3).newest(Path.read_bytes, retry_seconds=retry_seconds)
    return (found.manifest.step, found.state) if found else None


def keys(url: str) -> list[str]:
    store = from_url(url, client_options={"allow_http": True})
    return sorted(item["path"] for items in obstore.list(store) for item in items)


def states(url: str) -> list[str]:
    return [key for key in keys(url) if key.endswith("/state.pt")]


def test_a_state_in_parts_is_whole_and_only_the_newest_stay(url: str) -> None:
    storage = ObjectStore(url, keep=2)
    written = {step: random.randbytes(12_000_000) for step in (10, 20, 30)}
    for step, content in written.items():
        storage.write(manifest(1, step), state(content))
    assert newest(url) == (30, written[30])
    assert len(keys(url)) == 2 * 3 + 1, "two checkpoints and the probe"


@pytest.mark.usefixtures("url")
def test_a_bucket_that_does_not_exist_is_told_at_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"s3://nowhere/x cannot be listed: the bucket does not exist \(404 NoSuchB"
    ):
        ObjectStore("s3://nowhere/x", keep=1)


def test_credentials_that_the_server_does_not_know_are_told_at_the_start(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server.serving(installed, tmp_path / "log", INITIAL_NO_AUTH_ACTION_COUNT="1") as port:
        s3_server.make_bucket(port, BUCKET)
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(
            ConfigError, match=r"cannot be listed: the credentials do not permit it \(403 Inv"
        ) as error:
            ObjectStore(f"s3://{BUCKET}/x", keep=1)
    assert "wJalrXUtnFEMI" not in str(error.value)


@pytest.mark.parametrize(("method", "words"), [("PUT", "be written"), ("GET", "be listed")])
def test_a_right_that_is_missing_is_told_at_the_start_without_what_the_server_says_of_secrets(
    url: str, proxy: Proxy, method: str, words: str
) -> None:
    proxy.trouble_next(100, Trouble.REFUSED, method)
    with pytest.raises(ConfigError, match=rf"cannot {words}: the credentials do not permit it \(403 Acc") as error:
        ObjectStore(url, keep=1)
    assert "wJalrXUtnFEMI" not in str(error.value)


def test_who_may_not_delete_is_warned_and_goes_on(url: str, proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    storage = ObjectStore(url, keep=1)
    proxy.trouble_next(100, Trouble.REFUSED, part="?delete")
    for step in (10, 20):
        storage.write(manifest(1, step), state(b"state"))
    assert "could not be removed" in capsys.readouterr().err
    assert newest(url) == (20, b"state")


def test_a_store_that_is_unavailable_for_a_moment_is_asked_again(url: str, proxy: Proxy) -> None:
    for step, method in enumerate(("PUT", "GET", "HEAD", "POST"), start=1):
        proxy.trouble_next(2, Trouble.UNAVAILABLE, method)
        content = random.randbytes(6_000_000)
        ObjectStore(url, keep=1).write(manifest(1, step), state(content))
        assert newest(url) == (step, content)


@pytest.mark.usefixtures("impatient")
def test_a_store_that_is_away_while_a_checkpoint_is_saved_costs_this_one_only(url: str, proxy: Proxy) -> None:
    storage = ObjectStore(url, keep=3)
    before = (10, b"10")
    storage.write(manifest(1, before[0]), state(before[1]))
    for number, part in enumerate(("begun.json", "state.pt", "manifest.json", ""), start=2):
        proxy.trouble_next(10**6, Trouble.UNAVAILABLE, part=part)
        with pytest.raises(
            CheckpointMissedError, match=r"could not be saved: .* the server answers 503 SlowDown\. The"
        ):
            storage.write(manifest(1, number * 10), state(random.randbytes(6_000_000)))
        proxy.left = 0
        assert newest(url) == before
        before = (number * 10 + 1, part.encode())
        storage.write(manifest(1, before[0]), state(before[1]))
        assert newest(url) == before
    assert len(states(url)) == 3, "of those that failed nothing is left"


@pytest.mark.usefixtures("impatient")
def test_a_history_is_kept_in_the_store_and_waits_while_the_store_is_away(
    url: str, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = HistoryWriter("team", "digits", "uid", 0, 1, 1)
    proxy.trouble_next(10**6, Trouble.UNAVAILABLE, part="node-")
    journal = Journal(url, writer, SecretValues({}), 1, partial(open_target, url, writer))
    told = ""
    for number in range(100):
        journal.hear(1, f"line {number}\n".encode())
        journal.note(Event("begun", time.time(), 1, number, {}), hurry=True)
        time.sleep(0.05)
        told += capfd.readouterr().err
        if "the server answers 503 SlowDown. Training goes on" in told:
            proxy.left = 0
    journal.close(60)
    assert told.count("cannot be written now") == 1
    history = find_history(open_place(url), "team", "digits", None)
    lines = [line.text for line in history.log(history.segments(0, "log"))]
    assert lines == [f"line {number}" for number in range(100)]
    assert [event["step"] for event in history.events(0)] == [*range(100)]
    assert [line.text for line in history.log(history.segments(0, "log"), tail=1)] == lines[-1:]
    with pytest.raises(PlaceError, match="cannot read s3://nowhere/x: the bucket does not exist"):
        find_history(open_place("s3://nowhere/x"), None, None, None)


@pytest.mark.usefixtures("impatient")
def test_at_a_resume_nothing_starts_over_while_the_store_is_away_and_when_it_is_back_training_goes_on(
    url: str, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = ObjectStore(url, keep=3)
    storage.write(manifest(1, 10), state(b"10"))
    proxy.trouble_next(10**6, Trouble.UNAVAILABLE)
    with pytest.raises(StorageUnavailableError, match=r"Retried for 0 s\. Training does not start over: check that"):
        storage.newest(Path.read_bytes, start_over=True, retry_seconds=0)
    with pytest.raises(
        StorageUnavailableError, match="cannot be listed: the server answers 503 SlowDown; check that"
    ):
        ObjectStore(url, keep=3)
    timer = threading.Timer(2 * SHORT_SECONDS, lambda: proxy.trouble_next(0, Trouble.UNAVAILABLE))
    timer.start()
    found = storage.newest(Path.read_bytes, retry_seconds=patience(60))
    timer.join()
    assert found
    assert found.manifest.step == 10
    assert "retrying for" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["begun.json", "state.pt", "manifest.json"])
def test_an_answer_that_is_lost_costs_nothing(url: str, proxy: Proxy, part: str) -> None:
    storage = ObjectStore(url, keep=3)
    proxy.trouble_next(1, Trouble.LOST, "PUT", part)
    storage.write(manifest(1, 10), state(b"10"))
    assert proxy.troubled == 1
    assert newest(url) == (10, b"10")


def test_of_many_that_create_an_object_at_once_one_wins(url: str) -> None:
    store = from_url(url, client_options={"allow_http": True})
    together, won = threading.Barrier(8), list[int]()

    def create(number: int) -> None:
        together.wait()
        try:
            obstore.put(store, "manifest.json", str(number).encode(), mode="create")
        except AlreadyExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number).encode() for number in won] == [bytes(obstore.get(store, "manifest.json").bytes())]


def test_of_writers_that_race_the_latest_stays_the_newest_and_is_never_displaced(url: str) -> None:
    ObjectStore(url, keep=2)
    ended: dict[int, type[BaseException] | None] = {}
    generator = random.Random(SEED)
    delays = {attempt: generator.uniform(0, 0.3) for attempt in range(1, 5)}

    def save(attempt: int) -> None:
        storage = ObjectStore(url, keep=2)
        time.sleep(delays[attempt])
        try:
            for step in range(10, 60, 10):
                storage.write(manifest(attempt, step), state(f"{attempt}/{step}".encode()))
        except SupersededError as error:
            ended[attempt] = type(error)
        else:
            ended[attempt] = None

    threads = [threading.Thread(target=save, args=(attempt,)) for attempt in delays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended[4] is None, delays
    assert newest(url) == (50, b"4/50"), delays
    assert len(states(url)) <= 2 + 3, "of each that was late at most the one that it had committed"


def test_whenever_a_writer_is_killed_the_newest_is_whole_and_none_is_lost_that_it_told_of(url: str) -> None:
    told = 0
    for attempt in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(attempt)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert int(process.stdout.readline()) >= told
        for _ in range(random.randint(0, 2)):
            told = int(process.stdout.readline())
        time.sleep(random.uniform(0, 1.5))  # To a moment at random within the next save.
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = newest(url)
        assert found or not told
        if found:
            assert found[0] >= told
            assert found[1] == found[0].to_bytes(4, "big") * 5_000_000
            told = found[0]
    ObjectStore(url, keep=2).write(manifest(KILLS, told + 1), state(b"last"))
    assert len(states(url)) <= 2


def test_the_trainer_saves_to_a_store_and_resumes_from_it(runs: Runs, url: str, tmp_path: Path) -> None:
    job: list[Any] = ["--workload", f"{TASKS}:Counts", "--global-batch-size", 40, "--checkpoint-dir", url]
    first = runs.train(1, *job, "--checkpoint-every-steps", 10, "--max-steps", 15)
    assert "saved step=15" in first.output()
    second = runs.train(2, *job, "--checkpoint-every-steps", 10, env={"DDPJOB_ATTEMPT": "1"})
    assert "resumed step=15" in second.output()
    assert f"checkpoint={url}/step-00000025-" in second.output()
    assert not list(tmp_path.glob("s3*")), "no directory has the name of the URL"


def test_a_job_without_any_volume_resumes_from_its_url_after_its_pod_is_lost(url: str, tmp_path: Path) -> None:
    here = Here(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    command = (str(BIN / "ddpjob-supervise"), "--start-method", "cold", "train.py")
    job = here.job("any", *command, checkpoint={"path": url, "everySteps": 10}, restart={"backoffSeconds": 0})
    try:
        run = here.start("run", job)
        here.wait("a checkpoint", lambda: "saved step=10" in here.log("any", 0))
        here.trainers("any")[0].parent().kill()  # type: ignore[union-attr]
        output, _ = run.communicate(timeout=patience(120))
    finally:
        here.end()
    assert run.returncode == 0, output
    assert f"checkpoints: {url}\n" in output
    assert re.search(rf"resumed step=\d0 epoch=1 checkpoint={url}/step-000000\d0-", here.log("any", 0, attempt=2))
    assert re.search(rf"checkpoint +{url}/step-00000200-", output)
    assert not list(tmp_path.rglob("step-*"))
    assert read_newest(url).manifest.step == 200
    assert torch.load(f"{ddpjob.newest(url)}/state.pt")["position"][0] == 200


def test_a_restart_in_place_asks_nothing_of_a_store_that_is_silent_and_later_saves_there(
    url: str, proxy: Proxy, tmp_path: Path
) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    with a_gang(tmp_path, 1, 2, DDPJOB_CHECKPOINT_DIR=url) as gang:
        gang.start("counts.py")
        gang.wait("the checkpoint", lambda: "saved step=1000000" in gang.log(0))
        proxy.trouble_next(10**6, Trouble.SILENT)
        gang.ranks(0)[1].send_signal(signal.SIGKILL)
        assert {step.step for step in gang.await_steps(2).values()} == {1_000_001}
        assert "step 1000000 is restored from the local copy" in gang.log(0)
        assert proxy.troubled == 0, "requests of the second attempt"
        proxy.left = 0
        (tmp_path / "end").touch()
        assert gang.ends() == [0]
        assert "saved step=2000000" in gang.log(0)
    found = ObjectStore(url, keep=3).newest(Path.read_bytes)
    assert found
    assert found.manifest.lineage[-1] == 2
