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
    # A training of one process has no group: ours neither.
    PRELUDE.replace(
        "dist.init_process_group(", "alone = os.environ['WORLD_SIZE'] == '1'\nalone or dist.init_process_group("
    )
    + """
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler
from tests.gpu.model import BATCH, Timed, data, network

total = int(os.environ["GPU_STEPS"])
samples = data()
place = {"num_replicas": int(os.environ["WORLD_SIZE"]), "rank": rank}
sampler = DistributedSampler(samples, seed=0, drop_last=True, **place)
loader = DataLoader(samples, batch_size=None, sampler=BatchSampler(sampler, BATCH, drop_last=True), pin_memory=gpu)
model = network().to(device)
if not alone:
    model = nn.parallel.DistributedDataParallel(model)
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
if not alone:
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

LIBRARY = """
import os, sys, time
from pathlib import Path
import torch, ddpjob
from torch import nn

gpu = sys.argv[1] == "nccl"
device = torch.device("cuda" if gpu else "cpu")

def timed(act):
    if gpu:
        torch.cuda.synchronize()
    begun = time.monotonic()
    act()
    if gpu:
        torch.cuda.synchronize()
    return time.monotonic() - begun
"""

LIBRARY_SAVE = (
    LIBRARY
    + """
from ddpjob.checkpoint import writer
from ddpjob.checkpoint.encoding import decode
from torchvision.models import resnet18, resnet50

model = (resnet50 if gpu else resnet18)().to(device)
optimizer = torch.optim.AdamW(model.parameters())
images = torch.randn(64 if gpu else 2, 3, 64, 64, device=device)

def update():
    model(images).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

def plain():
    with open("plain.pt", "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())

take = writer.Snapshots.take

def taking(self, state):
    copy = take(self, state)
    assert all(value.is_pinned() for value in copy["model"].values()) or not gpu, "copied into pageable memory"
    return copy

writer.Snapshots.take = taking
settings = {"directory": "saved", "every_steps": 1, "keep": 2}
training = ddpjob.Training(model=model, optimizer=optimizer, loader=range(5), **settings)
rounds = []
for _ in training.epochs(1):
    batches = training.batches()
    next(batches)
    for _ in range(4):
        update()
        training.step()
        current = {name: value.clone() for name, value in model.state_dict().items()}
        waits = timed(lambda: next(batches))
        update()  # The save must not contain this.
        training._saver.finish()
        file = max(Path("saved").glob("step-*")) / "state.pt"
        for name, value in decode(file)["shared"]["model"].items():
            assert torch.equal(value, current[name].cpu()), f"saved too late: {name}"
        rounds.append((waits, timed(plain)))
    break
waits, bare = map(min, zip(*rounds[1:]))  # The first one pays for what happens once.
stops = f"stops training for {waits * 1e3:.0f} ms, torch.save for {bare * 1e3:.0f} ms"
print(f"figure: a save of {file.stat().st_size >> 20} MiB {stops}")
"""
)

LIBRARY_STEPS = (
    LIBRARY
    + """
from statistics import median
from tests.gpu.model import BATCH, data, network
from torch.utils.data import DataLoader

loader = DataLoader(data(), batch_size=BATCH, shuffle=True, drop_last=True, pin_memory=gpu)

def steps(ours):
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if ours:
        settings = {"directory": "saved", "every_seconds": 1e9}
        training = ddpjob.Training(model=model, optimizer=optimizer, loader=loader, **settings)
    for _ in training.epochs(1000) if ours else range(1000):
        for images, labels in training.batches() if ours else loader:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if ours:
                training.step(loss)
            yield

ours, bare = steps(True), steps(False)
turn = lambda loop: timed(lambda: [next(loop) for _ in range(50 if gpu else 4)])
ratios = [turn(ours) / turn(bare) for _ in range(31 if gpu else 4)][1:]
print(f"figure: {median(ratios):.3f} of the time of a step without it (median of {len(ratios)} pairs)")
"""
)

LIBRARY_RESUME = (
    PRELUDE.replace("import torch,", "import ddpjob, torch,")
    + """
from tests.gpu.model import BATCH, data
from torch.utils.data import DataLoader, DistributedSampler

torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.manual_seed(rank)
layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
optimizer = torch.optim.AdamW(model.parameters())
samples = torch.utils.data.Subset(data(), range(1024))
loader = DataLoader(samples, batch_size=BATCH, sampler=DistributedSampler(samples))
training = ddpjob.Training(model=model, optimizer=optimizer, loader=loader, directory=os.environ["GPU_SAVED"])
for _ in training.epochs(4):
    for images, labels in training.batches():
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        training.step(loss)
dist.destroy_process_group()
"""
)
