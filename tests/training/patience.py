"""A task that says how long its collectives wait."""

import torch
import torch.distributed as dist
from ddpjob_trainer.workloads.mlp import MlpTask
from torch import nn


class Patient(MlpTask):
    def model(self) -> nn.Module:
        group = dist.distributed_c10d._get_default_group()
        print("a collective waits", group._get_backend(torch.device("cpu")).options._timeout, flush=True)
        return super().model()
