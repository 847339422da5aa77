"""Options for image classification."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from ddpjob_rank.parsing import positive

DEFAULT_ARCH = "resnet18"
DEFAULT_SIZE = 224


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig:
    """A network of torchvision, and its input."""

    arch: str = DEFAULT_ARCH
    """Its name in torchvision.models."""
    size: int = DEFAULT_SIZE
    """Pixels of the side of an image as the network sees it."""
    skip_broken: bool = False
    """Take another image in place of one that cannot be decoded, which otherwise ends the run."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("what imagenet trains")
    group.add_argument(
        "-a", "--arch", default=DEFAULT_ARCH, help=f"a classification model of torchvision (default {DEFAULT_ARCH})"
    )
    group.add_argument(
        "--image-size",
        type=positive,
        default=DEFAULT_SIZE,
        metavar="PIXELS",
        help=f"side of the square that is cut out of an image (default {DEFAULT_SIZE})",
    )
    group.add_argument(
        "--skip-broken-images",
        action="store_true",
        help="take the next image in place of one that cannot be decoded, name and count it (default: the run ends)",
    )


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> ImagesConfig:
    """What flags ask for."""
    return ImagesConfig(arch=flags.arch, size=flags.image_size, skip_broken=flags.skip_broken_images)
