"""Like the third and fourth tutorials' DataParallel programs: one process, whose batches are divided among its GPUs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ASimpleNet(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(3, 3, bias=False) for _ in range(layers)])

    def forward(self, x):
        for linear in self.linears:
            x = torch.relu(linear(x))
        return x


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = ASimpleNet().to(device)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
model = nn.DataParallel(model)
loader = DataLoader(TensorDataset(torch.randn(1600, 3)), batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for epoch in range(100):
    for (batch,) in loader:
        loss = model(batch.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
