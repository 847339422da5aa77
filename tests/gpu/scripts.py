"""Plain scripts of the plan, as anybody writes them. The first argument is the backend."""

PRELUDE = """
import datetime, os, signal, sys, time
import torch, torch.distributed as dist
from torch import nn

backend, attempt = sys.argv[1], int(os.environ.get("DDPJOB_ATTEMPT", "1"))
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
gpu = backend == "nccl"
if gpu:
    torch.cuda.set_device(local)
device = torch.device("cuda", local) if gpu else torch.device("cpu")
dist.init_process_group(backend, timeout=datetime.timedelta(seconds=20))
"""

GROUP = (
    PRELUDE
    + """
total = torch.full((1 << 20,), float(rank + 1), device=device)
dist.all_reduce(total)
world = dist.get_world_size()
assert total[0].item() == world * (world + 1) / 2
moments = []
for _ in range(20):
    begun = time.monotonic()
    dist.all_reduce(total)
    if gpu:
        torch.cuda.synchronize()
    moments.append(time.monotonic() - begun)
if rank == 0:
    print(f"figure: all_reduce of 4 MiB over {world}: {sorted(moments)[10] * 1e3:.2f} ms")
dist.destroy_process_group()
"""
)

LOOP = """
model = nn.parallel.DistributedDataParallel(nn.Linear(256, 256).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def load_batch(step):
    if attempt == 1 and step == 20 and rank == dist.get_world_size() - 1:
        trouble()
    return torch.randn(64, 256, device=device)

for step in range(1, 41):
    loss = model(load_batch(step)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if gpu:
        torch.cuda.synchronize()
    if attempt == 2 and step == 1 and rank == 0 and os.path.exists("moment"):
        print(f"figure: first step {time.time() - os.path.getmtime('moment'):.2f} s after the kill")
dist.destroy_process_group()
"""

KILL = (
    PRELUDE
    + """
def trouble():
    open("moment", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    + LOOP
)

HANG = (
    PRELUDE
    + """
def trouble():
    time.sleep(3600)
"""
    + LOOP
)

ASK = (
    PRELUDE.replace("torch.cuda.set_device(local)", "pass")
    + """
import ddpjob

total, asking, step, stops = torch.ones(8, device=device), 0.0, 0, False
while not stops:
    step += 1
    if rank == 1 and step == 20:
        os.kill(os.getpid(), signal.SIGTERM)
    dist.all_reduce(total)
    if gpu:
        torch.cuda.synchronize(device)
        with torch.cuda.device(device):
            torch.cuda._sleep(100_000_000)  # About 50 ms, for which the CPU must not wait.
    begun = time.monotonic()
    stops = ddpjob.stop_requested()
    asking = max(asking, time.monotonic() - begun) if step > 3 else 0.0
if gpu:
    others = [other for other in range(torch.cuda.device_count()) if other != local]
    assert not any(map(torch.cuda.max_memory_allocated, others)), "it has used the GPU of another rank"
print(f"figure: rank {rank} stops after step {step}, asks for {asking * 1e3:.1f} ms", flush=True)
dist.destroy_process_group()
"""
)

BARE = (
    PRELUDE
    + """
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler
from tests.gpu.model import BATCH, Timed, data, network

total = int(os.environ["GPU_STEPS"])
samples = data()
sampler = DistributedSampler(samples, seed=0, drop_last=True)
loader = DataLoader(samples, batch_size=None, sampler=BatchSampler(sampler, BATCH, drop_last=True), pin_memory=gpu)
model = nn.parallel.DistributedDataParallel(network().to(device))
optimizer = Timed(model.parameters(), total)
step = epoch = 0
while step < total:
    sampler.set_epoch(epoch)
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        step += 1
        if step == total:
            break
    epoch += 1
dist.destroy_process_group()
"""
)

SAVE = """
import os, sys, time
from pathlib import Path
import ddpjob
import torch
from torchvision.models import resnet18, resnet50

gpu = sys.argv[1] == "nccl"
device = torch.device("cuda" if gpu else "cpu")
model = (resnet50 if gpu else resnet18)().to(device)
optimizer = torch.optim.AdamW(model.parameters())
images = torch.randn(64 if gpu else 2, 3, 64, 64, device=device)
checkpoints = ddpjob.Checkpoints(model=model, optimizer=optimizer, directory="saved", every_steps=1, keep=2)
checkpoints.resume()

def timed(act):
    if gpu:
        torch.cuda.synchronize()
    begun = time.monotonic()
    act()
    return time.monotonic() - begun

def plain():
    with open("plain.pt", "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())

rounds = []
for step in range(1, 5):
    optimizer.zero_grad()
    model(images).square().mean().backward()
    optimizer.step()
    saves = lambda: checkpoints.save_if_due(step)
    rounds.append((timed(saves), timed(checkpoints.finish), timed(plain)))
waits, _, bare = map(min, zip(*rounds[1:]))  # The first one pays for what happens once.
written = max(Path("saved").glob("step-*/state.pt")).stat().st_size
assert written >= Path("plain.pt").stat().st_size * 0.99
stops = f"stops training for {waits * 1e3:.0f} ms, torch.save for {bare * 1e3:.0f} ms"
print(f"figure: a save of {written >> 20} MiB {stops}")
"""
