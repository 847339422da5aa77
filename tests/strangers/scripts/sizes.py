"""Like the third tutorial's DDP program: random data through a layer that prints sizes; it is never trained."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group(backend="nccl")

input_size = 5
output_size = 2
batch_size = 30
data_size = 90

local_rank = torch.distributed.get_rank()
if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")


class RandomDataset(Dataset):
    def __init__(self, size, length):
        self.len = length
        self.data = torch.randn(length, size).to(device)

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return self.len


class Model(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc = nn.Linear(input_size, output_size)

    def forward(self, input):
        output = self.fc(input)
        print("  In Model: input size", input.size(), "output size", output.size())
        return output


dataset = RandomDataset(input_size, data_size)
rand_loader = DataLoader(dataset=dataset, batch_size=batch_size, sampler=DistributedSampler(dataset))
model = Model(input_size, output_size).to(device)
model = nn.parallel.DistributedDataParallel(model)
for number, data in enumerate(rand_loader):
    output = model(data)
    print(f"Outside {number}: input size", data.size(), "output_size", output.size())
