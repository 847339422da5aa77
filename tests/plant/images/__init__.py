"""The images that the plant's nodes run. buildah builds them into a store in the plant's cache."""

from .build import OPERATOR, PYTHON, TRAINER, build_images, check_images
from .store import Image, read_image

__all__ = ["OPERATOR", "PYTHON", "TRAINER", "Image", "build_images", "check_images", "read_image"]
