"""The imagenet workload: real images, decoded, as files and in shards."""

import tarfile
from pathlib import Path

import psutil
import pytest
import torch
from ddpjob_examples.images.image import to_test
from ddpjob_examples.images.shards import ImageShards
from ddpjob_operator.local.record_files import read
from ddpjob_trainer.data.loader import Loader

from tests.training import pictures
from tests.training.runs import Runs
from tests.unit.trainer.test_imagenet import skipping, task_of

SMALL = ["--workload", "imagenet", "--arch", "resnet18", "--image-size", 64, "--workers", 1]


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(
            pictures.as_files, marks=pytest.mark.full("shards hold the same samples, as the next test says")
        ),
        pictures.as_shards,
    ],
)
def test_resnet_18_learns_from_real_images_with_two_ranks(runs: Runs, tmp_path: Path, layout: object) -> None:
    data = layout(tmp_path / "data")  # type: ignore[operator]
    run = runs.train(2, *SMALL, "--data-dir", data, "--epochs", 2, "--batch-size", 8, "--lr", 0.02)
    assert run.steps() == list(range(1, 7))
    losses = [float(line.split("loss=")[1].split()[0]) for line in run.output().splitlines() if "progress" in line]
    assert losses[-1] < losses[0]
    assert 0 <= float(run.value("evaluated", "top1")) <= float(run.value("evaluated", "top5")) == 1.0
    assert run.value("evaluated", "samples") == "12"


def test_memory_stays_small_however_large_the_shards_are(tmp_path: Path) -> None:
    shard = tmp_path / "train" / "0.tar"
    shard.parent.mkdir()
    content = pictures.jpeg(0, 0) + bytes(1 << 20)  # A JPEG may be followed by anything.
    with tarfile.open(shard, "w") as tar:
        for number in range(256):
            pictures.add(tar, f"{number}.jpg", content)
            pictures.add(tar, f"{number}.cls", b"0")
    data = ImageShards(shard.parent, to_test(64))
    data[0]
    before = psutil.Process().memory_info().rss
    for index in range(len(data)):
        data[index]
    assert psutil.Process().memory_info().rss - before < shard.stat().st_size / 8


def test_a_broken_image_is_named_once_whichever_worker_meets_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = skipping(pictures.as_shards, tmp_path, 7, 8, 30)
    batches = [torch.arange(first, first + 6) for first in range(0, 48, 6)]
    seen = []
    for workers in (0, 2):
        loader = Loader(data, seed=0, device=torch.device("cpu"), workers=workers)
        seen += [[images for images, _ in loader.batches(epoch, batches)] for epoch in (1, 1)]
    for other in seen[1:]:
        assert all(torch.equal(one, same) for one, same in zip(seen[0], other, strict=True))
    assert data.broken
    assert data.broken.numbers() == [7, 8, 30]
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == 3
    assert warnings[0].startswith("warning: the image 00007 in ")
    assert warnings[0].endswith("; the next image that can be decoded takes its place")


def test_what_a_worker_has_met_its_rank_knows(tmp_path: Path) -> None:
    data = skipping(pictures.as_files, tmp_path, 3)
    loader = Loader(data, seed=0, device=torch.device("cpu"), workers=1)
    list(loader.batches(1, [torch.tensor([1])]))
    assert data.broken
    assert data.broken.numbers() == [1]


def test_a_run_skips_broken_images_counts_them_and_takes_as_many_steps(runs: Runs, tmp_path: Path) -> None:
    skipping(pictures.as_files, tmp_path / "data", 4, 5, 40)
    (tmp_path / "data" / "val" / "cat" / "00001.jpg").write_text("<html>")
    job = [
        *SMALL,
        "--data-dir",
        tmp_path / "data",
        "--epochs",
        2,
        "--batch-size",
        8,
        "--log-dir",
        tmp_path / "metrics",
    ]
    run = runs.train(2, *job, "--skip-broken-images")
    assert run.steps() == list(range(1, 7))
    assert "skipped epoch=1/2 broken=4" in run.output()
    assert "skipped epoch=2/2 broken=4" in run.output()
    named = [line for rank in range(2) for line in run.errors(rank).splitlines() if "cannot be decoded" in line]
    assert len(named) == 4, named
    (start,) = read(tmp_path / "metrics" / "metrics.jsonl").starts
    assert [entry.number("broken") for entry in start.of("skipped")] == [4, 4]


@pytest.mark.parametrize("arch", ["resnet50", "googlenet", "inception_v3", "vit_b_16"])
def test_any_classification_model_of_torchvision_is_one(tmp_path: Path, arch: str) -> None:
    task = task_of(pictures.as_files(tmp_path, 1, 1), "--arch", arch, "--image-size", "224")
    with torch.device("meta"):
        assert task.model()(torch.zeros(2, 3, 224, 224)).shape == (2, 3)
