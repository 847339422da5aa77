"""Like the fifth tutorial: its place is that of a Slurm task, and the processes meet at an address cut out by hand."""

import os
import re

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["SLURM_PROCID"])
world_size = int(os.environ["SLURM_NTASKS"])
local_rank = int(os.environ["SLURM_LOCALID"])
node_list = str(os.environ["SLURM_NODELIST"])

node_parts = re.findall("[0-9]+", node_list)
host_ip = f"{node_parts[1]}.{node_parts[2]}.{node_parts[3]}.{node_parts[4]}"
port = "23456"
init_method = f"tcp://{host_ip}:{port}"
dist.init_process_group("nccl", init_method=init_method, world_size=world_size, rank=rank)

if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
model = DDP(nn.Linear(16, 4).to(device))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(1000):
    for _ in range(20):
        loss = model(torch.randn(64, 16, device=device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
