"""A loop with Hugging Face Accelerate that saves each epoch and goes on from the last one that is whole."""

import os
import pathlib
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

accelerator = Accelerator()
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(800, 8), torch.randint(0, 2, (800,)))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=10, shuffle=True))

saved = pathlib.Path("saved")
done = max((int(path.name) for path in saved.glob("[0-9]*")), default=0)
if done:
    accelerator.load_state(saved / str(done))
accelerator.wait_for_everyone()
for epoch in range(done, int(sys.argv[1])):
    print(f"epoch {epoch} begins")
    for inputs, labels in tqdm(loader, disable=not accelerator.is_main_process):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state(saved / "new")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        os.rename(saved / "new", saved / str(epoch + 1))
accelerator.end_training()
