"""The imagenet workload: real images, decoded, as files and in shards."""

import errno
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob.data.order import Order
from ddpjob_examples import imagenet
from ddpjob_examples.imagenet import ImageNetTask
from ddpjob_examples.images import image, tar_index
from ddpjob_examples.images.broken import Broken
from ddpjob_examples.images.files import ImageFiles
from ddpjob_examples.images.image import Images, normalised, pixels, to_test, to_train
from ddpjob_examples.images.layout import image_classes
from ddpjob_examples.images.shards import ImageShards
from ddpjob_examples.images.tar_index import NAME as INDEX
from ddpjob_examples.images.tar_index import TarIndex
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig, read_config
from PIL import Image

from tests.training import pictures


def test_shards_hold_the_same_samples_as_files(tmp_path: Path) -> None:
    files = image_classes(pictures.as_files(tmp_path / "files"), 64)
    shards = image_classes(pictures.as_shards(tmp_path / "shards"), 64)
    assert files.test
    assert shards.test
    assert (files.classes, len(files.test)) == (shards.classes, len(shards.test)) == (3, 12)  # type: ignore[arg-type]
    by_class = sorted((shards.test[index] for index in range(12)), key=lambda sample: sample[1])
    for (picture, label), (other, its_label) in zip(
        (files.test[index] for index in range(12)), by_class, strict=True
    ):
        assert label == its_label
        assert torch.equal(picture, other)


def test_an_image_is_cut_as_torchvisions_reference_cuts_it() -> None:
    from torchvision.transforms import v2  # noqa: PLC0415  (its import takes seconds)

    image = Image.effect_noise((300, 200), 80).convert("RGB")
    reference = v2.Compose(
        [
            v2.Resize(256),
            v2.CenterCrop(224),
            v2.PILToTensor(),
            v2.ToDtype(torch.float, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    assert torch.allclose(normalised(to_test(224)(image)), reference(image), atol=1e-5)
    torch.manual_seed(1)
    ours = normalised(to_train(64)(image))
    torch.manual_seed(1)
    theirs = v2.Compose([v2.RandomResizedCrop(64), v2.RandomHorizontalFlip()])(image)
    assert (ours - normalised(pixels(theirs))).abs().mean() < 0.05


def test_a_large_jpeg_is_decoded_at_less_than_its_size_and_looks_alike(tmp_path: Path) -> None:
    smooth = Image.radial_gradient("L").resize((1024, 768)).convert("RGB")
    smooth.save(tmp_path / "large.jpg", quality=95)
    torch.manual_seed(2)
    whole = normalised(to_train(32)(smooth))
    torch.manual_seed(2)
    with Image.open(tmp_path / "large.jpg") as large:
        drafted = normalised(to_train(32)(large))
        assert large.size[0] < 1024
    assert (whole - drafted).abs().max() < 0.1


def test_the_index_is_kept_and_made_anew_when_a_shard_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = pictures.as_shards(tmp_path) / "train"
    ImageShards(train, to_test(64))
    assert "reading the headers of 5 shards" in capsys.readouterr().out
    assert len(ImageShards(train, to_test(64))) == 48
    assert capsys.readouterr().out == ""
    (train / "train-0004.tar").unlink()
    assert len(ImageShards(train, to_test(64))) == 40
    (train / INDEX).write_text("torn")
    assert len(ImageShards(train, to_test(64))) == 40


def test_processes_of_several_containers_that_have_one_number_keep_the_index_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, write, begun = pictures.as_shards(tmp_path) / "train", tar_index.np.savez, []

    def interrupted(file: Any, **arrays: Any) -> None:
        """Another one begins and ends in between, which on another machine no lock prevents."""
        if not begun:
            begun.append(True)
            tar_index._keep(train, TarIndex(arrays["firsts"], arrays["spans"]), str(arrays["state"]))
        write(file, **arrays)

    monkeypatch.setattr(tar_index.np, "savez", interrupted)
    ImageShards(train, to_test(64))
    assert "cannot write the index" not in capsys.readouterr().out
    assert [path.name for path in train.glob(".*")] == [INDEX]


@pytest.mark.parametrize("begun", [True, False])
def test_where_the_index_cannot_be_written_each_start_makes_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, begun: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    train = pictures.as_shards(tmp_path) / "train"
    if begun:
        monkeypatch.setattr(tar_index.np, "savez", refuse)
    else:
        monkeypatch.setattr(Path, "open", refuse)
    assert len(ImageShards(train, to_test(64))) == 48
    said = f"cannot write the index to {train} (No space left on device): each start reads all headers again"
    assert said in capsys.readouterr().out
    assert not list(train.glob(".*"))


def test_where_a_directory_cannot_be_locked_the_index_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(tar_index.fcntl, "flock", refuse)
    assert len(ImageShards(pictures.as_shards(tmp_path) / "train", to_test(64))) == 48


def test_a_compressed_shard_is_told_before_a_sample_is_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w:gz") as tar:
        pictures.add(tar, "0.jpg", pictures.jpeg(0, 0))
        pictures.add(tar, "0.cls", b"0")
    with pytest.raises(ConfigError, match=r"0.tar is broken at its start"):
        ImageShards(tmp_path, to_test(64))


def test_an_order_of_shards_is_complete_and_stays_within_few_of_them(tmp_path: Path) -> None:
    data = ImageShards(pictures.as_shards(tmp_path, train=20) / "train", to_test(64), window=20)
    orders = [
        torch.cat(list(Order(60, 12, 0, 1, seed, data.shuffled).batches(epoch))).tolist()
        for seed, epoch in ((0, 1), (0, 1), (0, 2), (50, 1))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
    for order in orders:
        assert sorted(order) == list(range(60))
        assert all(len({index // 10 for index in order[begin : begin + 20]}) == 2 for begin in (0, 20, 40))


def break_images(train: Path, *numbers: int) -> None:
    """Leaves only the beginning of some of the images, in files and in shards."""
    for number in numbers:
        content = pictures.jpeg(number % 3, number)
        broken = content[:300].ljust(len(content), b"\0")
        for path in (*train.rglob(f"{number:05}.jpg"), *train.glob("*.tar")):
            path.write_bytes(path.read_bytes().replace(content, broken))


def skipping(layout: Any, directory: Path, *numbers: int) -> Images:
    """A training set of 48 images, some of which are broken, and skipped."""
    break_images(layout(directory) / "train", *numbers)
    return image_classes(directory, 64, skip_broken=True).train


KINDS: dict[Any, Any] = {pictures.as_files: ImageFiles, pictures.as_shards: ImageShards}


@pytest.mark.parametrize(
    ("layout", "broken", "indexes", "instead"),
    [
        (pictures.as_files, [3], [1], 2),  # The second beetle.
        (pictures.as_files, [3, 6], [1, 2], 3),
        (pictures.as_files, [47], [47], 0),  # The last dog.
        (pictures.as_shards, [3], [3], 4),
        (pictures.as_shards, [9], [9], 10),  # In the next shard.
    ],
)
def test_in_place_of_a_broken_image_comes_the_next_one_that_can_be_decoded(
    tmp_path: Path, layout: Any, broken: list[int], indexes: list[int], instead: int
) -> None:
    train, kind = layout(tmp_path, val=0) / "train", KINDS[layout]
    whole = list(kind(train, to_test(64)))
    break_images(train, *broken)
    for number, (picture, label) in enumerate(kind(train, to_test(64), skip_broken=True)):
        expected, its_label = whole[instead if number in indexes else number]
        assert label == its_label
        assert torch.equal(picture, expected)


def test_a_broken_image_is_named_when_it_is_met_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = skipping(pictures.as_shards, tmp_path, 3)
    for _ in range(2):
        read_all(data)
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: the image 00003 in ")
    assert warning.endswith("; the next image that can be decoded takes its place")


def test_only_what_cannot_be_decoded_is_skipped(tmp_path: Path) -> None:
    files = skipping(pictures.as_files, tmp_path / "files")
    (tmp_path / "files" / "train" / "beetle" / "00003.jpg").unlink()
    with pytest.raises(TrainerError, match=r"beetle/00003.jpg cannot be read: No such file"):
        files[1]
    shards = skipping(pictures.as_shards, tmp_path / "shards")
    (tmp_path / "shards" / "train" / "train-0000.tar").write_bytes(bytes(1000))
    with pytest.raises(ConfigError, match=r"train-0000.tar has changed at byte"):
        shards[0]


def test_a_run_of_broken_images_is_too_much_to_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = skipping(pictures.as_shards, tmp_path, *range(48))
    with pytest.raises(ConfigError, match=r"none of 48 images in a row, from 00005 in .* on, can be decoded"):
        data[5]
    monkeypatch.setattr(image, "MOST_BROKEN", 7)
    with pytest.raises(ConfigError, match=r"none of 7 images in a row, "):
        data[5]


def read_all(data: Any) -> None:
    for index in range(len(data)):
        data[index]


def spoil(directory: Path, kind: str) -> None:
    """Makes one mistake in a set of files."""
    match kind:
        case "no train":
            (directory / "train").rename(directory / "training")
        case "no class":
            for name in ("beetle", "cat", "dog"):
                shutil.rmtree(directory / "train" / name)
        case "an empty class":
            (directory / "train" / "emu").mkdir()
        case "a class with another name in val":
            (directory / "val" / "cat").rename(directory / "val" / "lion")
        case "a class missing in train":
            shutil.rmtree(directory / "train" / "cat")
        case "a broken image":
            file = directory / "val" / "cat" / "00001.jpg"
            file.write_bytes(file.read_bytes()[:500])
        case "no image":
            (directory / "val" / "cat" / "00001.jpg").write_text("<html>")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no train", "has no directory train/: it must hold images as train/CLASS/*.jpg"),
        ("no class", "train has no classes: it must hold a directory of images for each class"),
        ("an empty class", "train/emu has no images: no file in it ends with .jpg"),
        ("a class with another name in val", "class cat is in {0}/train but not in {0}/val: both"),
        ("a class missing in train", "class cat is in {0}/val but not in {0}/train: both"),
        ("a broken image", "val/cat/00001.jpg cannot be decoded: "),
        ("no image", "val/cat/00001.jpg cannot be decoded: it is not an image"),
    ],
)
def test_a_mistake_in_the_files_is_one_clear_error(tmp_path: Path, kind: str, message: str) -> None:
    spoil(pictures.as_files(tmp_path), kind)
    with pytest.raises(ConfigError) as error:
        read_all(image_classes(tmp_path, 64).test)
    assert message.format(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_directory_without_shards_or_with_a_class_that_is_not_trained_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{tmp_path} has no shards: no file in it ends with .tar$"):
        ImageShards(tmp_path, to_test(64))
    assert image_classes(pictures.as_shards(tmp_path), 64).classes == 3
    with tarfile.open(tmp_path / "val" / "val-0000.tar", "a") as tar:
        pictures.add(tar, "7.jpg", pictures.jpeg(0, 7))
        pictures.add(tar, "7.cls", b"3")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/val has class 3, but the classes in .*/train end at 2$"):
        image_classes(tmp_path, 64)


def test_without_a_directory_the_flag_is_named_that_was_not_given() -> None:
    with pytest.raises(ConfigError, match=r"^--data-dir is not given: it names the directory with train/ and val/ "):
        image_classes(None, 64)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"7.cls": b"0"}, "0.tar is broken at sample 7: has no image, but .cls"),
        ({"7.jpg": b""}, "0.tar is broken at sample 7: has no class: neither a .cls of digits nor a .json"),
        ({"7.jpg": b"", "7.json": b'{"label": "cat"}'}, "sample 7: has no class"),
        ({"7.jpg": b"", "7.json": b"{"}, "sample 7: has no class"),
        ({"7.jpg": b"", "7.json": b"[0]"}, "sample 7: has no class"),
        ({"7.jpg": b"", "7.cls": b"9" * 30}, "sample 7: has no class"),
        ({"7.jpg": b"no image", "7.json": b'{"label": 0}'}, "the image 7 in "),
        ({}, "0.tar is broken at sample 00046"),
    ],
)
def test_a_mistake_in_a_shard_names_shard_and_sample(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    train = pictures.as_shards(tmp_path, in_a_shard=100) / "train"
    (train / "train-0000.tar").rename(train / "0.tar")
    with tarfile.open(train / "0.tar", "a") as tar:
        for name, content in files.items():
            pictures.add(tar, name, content)
    if not files:
        content = (train / "0.tar").read_bytes()
        (train / "0.tar").write_bytes(content[: content.index(b"00046.jpg") + 600])
    with pytest.raises(ConfigError) as error:
        read_all(ImageShards(train, to_test(64)))
    assert message in str(error.value)


def test_a_shard_that_changes_under_a_run_is_told(tmp_path: Path) -> None:
    train = pictures.as_shards(tmp_path) / "train"
    data = ImageShards(train, to_test(64))
    (train / "train-0000.tar").write_bytes(bytes(1000))
    with pytest.raises(ConfigError, match=r"train-0000.tar has changed at byte 0 since its samples were indexed"):
        data[0]
    (train / "train-0000.tar").unlink()
    with pytest.raises(TrainerError, match=r"train-0000.tar cannot be read: No such file or directory$"):
        data[0]


def test_folders_and_links_in_a_shard_are_no_samples(tmp_path: Path) -> None:
    shard = tmp_path / "0.tar"
    with tarfile.open(shard, "w") as tar:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE):
            member = tarfile.TarInfo(f"other-{kind.decode()}")
            member.type = kind
            tar.addfile(member)
        pictures.add(tar, "7.jpg", pictures.jpeg(0, 7))
        pictures.add(tar, "7.cls", b"2")
    ((_, label),) = ImageShards(tmp_path, to_test(64))
    assert label == 2


def test_which_samples_are_broken_is_known_once_for_each_whoever_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Broken(9)
    assert known.numbers() == []
    assert [known.add(number) for number in (8, 3, 8)] == [True, True, False]
    known.update([0, 3])
    assert known.numbers() == [0, 3, 8]
    assert Broken(0).numbers() == []
    pictures.as_files(tmp_path, 2, 2)
    task = task_of(tmp_path, "--skip-broken-images")
    assert task.broken_samples(World()) == 0
    assert task.images.train.broken
    assert task.images.test
    assert task.images.test.broken
    task.images.train.broken.update([1, 5])
    task.images.test.broken.update([1])
    assert task.broken_samples(World()) == 3
    assert task_of(tmp_path).broken_samples(World()) is None
    monkeypatch.setattr(imagenet, "all_gather", lambda own, _: [own, [2, 5]])  # What another rank has found.
    assert task.broken_samples(World(rank=0, world_size=2)) == 6


def test_the_right_class_counts_if_it_is_the_likeliest_and_if_it_is_among_five(tmp_path: Path) -> None:
    task = task_of(pictures.as_files(tmp_path, 1, 0))
    scores = torch.arange(8.0).repeat(8, 1)  # The likeliest of eight classes is the last one.
    assert {name: int(sum_) for name, sum_ in task.metrics(scores, torch.arange(8)).items()} == {"top1": 1, "top5": 5}
    few = task.metrics(torch.arange(3.0).repeat(3, 1), torch.arange(3))
    assert {name: int(sum_) for name, sum_ in few.items()} == {"top1": 1, "top5": 3}


def test_what_a_network_gets_is_normalised_once(tmp_path: Path) -> None:
    task = task_of(pictures.as_files(tmp_path, 1, 0))
    white = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    made = task.inputs(white)
    assert made[0, :, 0, 0].tolist() == pytest.approx(
        [(1 - mean) / deviation for mean, deviation in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))]
    )
    assert task.inputs(made) is made
    assert (task.epochs, task.batch_size, task.lr, task.momentum) == (90, 32, 0.1, 0.9)
    assert (task.weight_decay, task.lr_scheduler, task.workers) == (1e-4, "steplr", None)


def test_another_name_is_told_with_those_that_are_like_it(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="--arch resnet19 is not a classification model of torchvision: such as resnet1"
    ):
        task_of(pictures.as_files(tmp_path, 1, 1), "--arch", "resnet19").model()


@pytest.mark.parametrize(
    ("name", "more"),
    [("resnet18", {}), ("googlenet", {"aux_logits": False, "init_weights": True})],
)
def test_a_network_is_one_of_torchvisions_with_an_output_for_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: dict[str, bool]
) -> None:
    from torchvision import models  # noqa: PLC0415  (its import takes seconds)

    monkeypatch.setattr(models, "get_model", lambda *words, **how: (words, how))
    made: Any = task_of(pictures.as_files(tmp_path, 3, 0), "--arch", name).model()
    assert made == ((name,), {"weights": None, "num_classes": 3, **more})


def test_without_val_nothing_is_held_out(tmp_path: Path) -> None:
    assert task_of(pictures.as_files(tmp_path, 1, 0)).test_data() is None


def task_of(directory: Path, *flags: str) -> ImageNetTask:
    config: TrainConfig = read_config(["--workload", "imagenet", "--data-dir", str(directory), *flags], {})
    return ImageNetTask(config)
