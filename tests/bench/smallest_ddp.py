"""The smallest DDP script for the model and the data of `ddpjob-train`: nothing but training."""

import sys

import torch
import torch.distributed as dist
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.workloads.convnet import ConvNet
from ddpjob_trainer.workloads.handwriting import load
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

EPOCHS, BATCH = int(sys.argv[1]), 32

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
data = load(TrainConfig()).train
sampler: DistributedSampler[object] = DistributedSampler(data, seed=0, drop_last=True)
# Whole batches by one indexing of the tensors: far faster than the loader's usual one by one.
loader = DataLoader(data, batch_size=None, sampler=BatchSampler(sampler, BATCH, drop_last=True))
model = DistributedDataParallel(ConvNet(side=8))
optimizer = SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
total = EPOCHS * (len(sampler) // BATCH)
scheduler = CosineAnnealingLR(optimizer, T_max=total)
step = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step in {1, total}:
            print(f"progress step={step}/{total} loss={loss.item():.4f}", flush=True)
dist.destroy_process_group()
