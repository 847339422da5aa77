"""Like nanoGPT's train.py: settings at the top, random batches, accumulated gradients, a schedule in a function."""

import math
import os
import time
from contextlib import nullcontext

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
eval_interval, eval_iters, log_interval = 20, 2, 10
gradient_accumulation_steps, batch_size, block_size = 4, 4, 16
n_embd, dropout = 16, 0.1
learning_rate, max_iters, warmup_iters, min_lr = 1e-2, 60, 5, 1e-3
grad_clip = 1.0
backend = "gloo"


class GPT(torch.nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte = torch.nn.Embedding(vocab_size, n_embd)
        self.block = torch.nn.TransformerEncoderLayer(n_embd, 2, 4 * n_embd, dropout, batch_first=True)
        self.lm_head = torch.nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        logits = self.lm_head(self.block(self.wte(idx), src_mask=mask, is_causal=True))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


ddp = int(os.environ.get("RANK", -1)) != -1
seed_offset = 0
if ddp:
    init_process_group(backend=backend)
    seed_offset = int(os.environ["RANK"])
    gradient_accumulation_steps //= int(os.environ["WORLD_SIZE"])
os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + seed_offset)
data = {split: torch.randint(0, 32, (4096,)) for split in ("train", "val")}


def get_batch(split):
    ix = torch.randint(len(data[split]) - block_size, (batch_size,))
    x = torch.stack([data[split][i : i + block_size] for i in ix])
    y = torch.stack([data[split][i + 1 : i + 1 + block_size] for i in ix])
    return x, y


iter_num = 0
model = GPT(32)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
if ddp:
    model = DDP(model)
raw_model = model.module if ddp else model


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [sum(model(*get_batch(split))[1].item() for _ in range(eval_iters)) for split in ("train", "val")]
    model.train()
    return losses


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


X, Y = get_batch("train")
t0 = time.time()
while True:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses[0]:.4f}, val loss {losses[1]:.4f}", flush=True)
        if iter_num > 0 and seed_offset == 0:
            checkpoint = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num}
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    for micro_step in range(gradient_accumulation_steps):
        last = micro_step == gradient_accumulation_steps - 1
        with nullcontext() if not ddp or last else model.no_sync():
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
            X, Y = get_batch("train")
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {(time.time() - t0) * 1000:.2f}ms", flush=True)
    iter_num += 1
    if iter_num > max_iters:
        break
if ddp:
    destroy_process_group()
