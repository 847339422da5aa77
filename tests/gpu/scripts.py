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
