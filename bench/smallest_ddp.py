"""The smallest DDP script for a model of the bench. It only trains: `smallest_ddp MODEL STEPS`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from bench.models import MODELS, optimizer

chosen, total = MODELS[sys.argv[1]], int(sys.argv[2])

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
data = chosen.data()
sampler: DistributedSampler[object] = DistributedSampler(data, seed=0, drop_last=True)
# The sampler yields whole batches, because indexing tensors by batches is far faster than by samples.
loader = DataLoader(data, batch_size=None, sampler=BatchSampler(sampler, chosen.batch, drop_last=True))
model = DistributedDataParallel(chosen.network())
descent = optimizer(model)
scheduler = CosineAnnealingLR(descent, T_max=total)
step = epoch = 0
while step < total:
    sampler.set_epoch(epoch)
    for images, labels in loader:
        descent.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        descent.step()
        scheduler.step()
        step += 1
        if step in {1, total}:
            print(f"progress step={step}/{total} loss={loss.item():.4f}", flush=True)
        if step == total:
            break
    epoch += 1
dist.destroy_process_group()
os._exit(0)  # A normal exit may abort if a PyTorch thread is still running while the interpreter shuts down.
