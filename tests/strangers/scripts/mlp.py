"""Like the second tutorial: an MLP on MNIST, whose two processes of one machine are spawned, over gloo."""

import os

import torch
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x.view(-1, 784))))


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    torch.distributed.destroy_process_group()


def train(rank, world_size):
    setup(rank, world_size)
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    dataset = datasets.MNIST("./data", train=True, download=True, transform=transform)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    model = DDP(MLP().to(device))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    for epoch in range(10):
        model.train()
        for batch, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = loss_fn(model(data.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            if batch % 10 == 0:
                print(f"Rank {rank}, Epoch: {epoch}, Loss: {loss.item()}", flush=True)
    cleanup()


def main():
    world_size = 2
    mp.spawn(train, args=(world_size,), nprocs=world_size, join=True)


if __name__ == "__main__":
    main()
