"""The data of a training run: which batches it has seen, and which come next."""

from .sampler import DistributedBatchSampler

__all__ = ["DistributedBatchSampler"]
