"""URLs in place of directories: which are right, and what only reads checkpoints there."""

import atexit
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import ddpjob
import obstore
import pytest
import torch
from ddpjob.checkpoint import object_store
from ddpjob.checkpoint.encoding import encode
from ddpjob.checkpoint.object_store import ObjectStore
from ddpjob.checkpoint.opening import open_storage, read_newest
from ddpjob.checkpoint.weights import export
from ddpjob.training.save_settings import read_settings
from ddpjob_operator.api import spec
from ddpjob_rank.errors import CheckpointUnusableError, ConfigError
from ddpjob_rank.machine import storage
from ddpjob_rank.machine.storage import checked_address
from ddpjob_rank.manifests.manifest import Manifest, Shard
from ddpjob_trainer.config import read_config
from ddpjob_trainer.inference import trained
from obstore.store import MemoryStore
from safetensors.torch import load_file

from tests.support.refused_jobs import SECRET, URLS

URL = "s3://jobs/digits"
TAKES_A_URL: dict[str, Callable[[str], object]] = {
    "to save": partial(open_storage, keep=1),
    "ddpjob.Training": lambda url: read_settings(url, every_steps=None, every_seconds=None, keep=None, env={}),
    "ddpjob.newest": ddpjob.newest,
    "ddpjob export": partial(export, output=Path("x")),
    "ddpjob-train": lambda url: read_config(["--checkpoint-dir", url], {}),
    "ddpjob-train predict": trained.load,
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The store at URL."""
    store = MemoryStore()
    monkeypatch.setattr(object_store, "opened", lambda _: store)
    return store


def save(*steps: int) -> list[str]:
    """Saves checkpoints; returns their URLs."""
    storage = ObjectStore(URL, keep=3)
    written = []
    for step in steps:
        shared = {"model": {"weight": torch.tensor([float(step)])}}
        state = {"shared": shared, "ranks": [{}], "position": [step, 1, 0]}
        written.append(storage.write(Manifest(step, 1, step, 2, 64, "uid", (0, 1)), partial(encode, state)))
    return written


@pytest.mark.parametrize("extra", ["", "store"])
@pytest.mark.parametrize("call", TAKES_A_URL.values(), ids=TAKES_A_URL)
@pytest.mark.parametrize("url", [*(bad for bad, _ in URLS), "s3:/bucket/a", f"s3:/me:{SECRET}@bucket/a"])
def test_a_wrong_url_is_told_without_what_may_be_secret(
    url: str, call: Callable[[str], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not extra:
        monkeypatch.setitem(sys.modules, "ddpjob.checkpoint.object_store", None)
    with pytest.raises(ConfigError, match="must be a directory, or a URL such as s3://BUCKET/PATH") as error:
        call(url)
    assert SECRET not in str(error.value)
    assert str(error.value).startswith(f"{url.partition(':')[0]}:/")


def test_operator_and_trainer_agree_which_urls_are_right() -> None:
    assert spec.STORE_URL == storage.STORE_URL
    assert [str(checked_address(good)) for _, good in URLS] == [good for _, good in URLS]


@pytest.mark.usefixtures("store")
def test_what_only_reads_finds_the_newest_or_the_one_that_is_named_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = save(10, 20)
    for request in ("put", "delete", "open_writer"):
        monkeypatch.setattr(obstore, request, None)
    for address, checkpoint, step in ((URL, second, 20), (f"{URL}/", second, 20), (first, first, 10)):
        found = read_newest(address)
        assert found.location == checkpoint
        export(address, tmp_path / "out")
        assert load_file(tmp_path / "out")["weight"].item() == step
        copy = ddpjob.newest(address)
        assert copy
        assert checkpoint == f"{URL}/{copy.name}"
        assert torch.load(copy / "state.pt")["shared"]["model"]["weight"].item() == step
        assert read_newest(copy).manifest == found.manifest


def test_the_flags_of_a_training_are_those_of_its_checkpoint_in_a_store() -> None:
    found = trained.Trained(f"{URL}/step-00000010-1", 10, {}, ("--workload", "mlp", "--checkpoint-every-steps", "5"))
    config = found.config([])
    assert config.checkpoint
    assert (config.workload, config.checkpoint.directory) == ("mlp", URL)


@pytest.mark.usefixtures("store")
def test_a_copy_is_removed_when_the_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_the_end: list[Callable[[], object]] = []
    monkeypatch.setattr(
        atexit, "register", lambda call, *words, **more: at_the_end.append(partial(call, *words, **more))
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    save(10)
    copy = ddpjob.newest(URL)
    assert copy
    assert sorted(file.name for file in copy.iterdir()) == ["manifest.json", "state.pt"]
    for call in at_the_end:
        call()
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_checkpoints_is_told_and_left_as_it_is(store: MemoryStore) -> None:
    with pytest.raises(
        ConfigError, match=f"^{URL} has no valid checkpoint: name the place where a training run saves$"
    ):
        read_newest(URL)
    assert ddpjob.newest(URL) is None
    assert not [*obstore.list(store)]


def test_a_state_that_is_divided_among_files_is_not_read_from_a_store(store: MemoryStore) -> None:
    (url,) = save(10)
    key = f"{url.removeprefix(f'{URL}/')}/manifest.json"
    told = json.loads(bytes(obstore.get(store, key).bytes()))
    told["shards"] = [asdict(Shard("__0_0.distcp", 1, "0" * 64))]
    obstore.put(store, key, json.dumps(told).encode())
    with pytest.raises(CheckpointUnusableError, match="divided among files, which can be read only from a directory"):
        read_newest(URL)
