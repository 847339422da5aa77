"""`ddpjob.Training` on ranks with different numbers of batches, by PyTorch's Join, with real processes."""

import random
from pathlib import Path

import pytest

from tests.support.killed_scripts import Attempts
from tests.training.killing import Script, draw_kill

JOINED = """
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import ddpjob
from ddpjob.training import rank_states

rank_states.PASSED_SECONDS = 0.1
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
history = os.open(f"{os.environ['HERE']}/history-{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words):
    os.write(history, " ".join(map(str, (*words, "\\n"))).encode())


note("started")
torch.manual_seed(rank)
network = torch.nn.Linear(4, 1)
model = DistributedDataParallel(network)
# Ranks without batches make no steps, so that the states of Adam would differ among ranks. That of rank 0 is saved.
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = range(LENGTHS[rank])
training = ddpjob.Training(
    model=model, optimizer=optimizer, loader=loader, every_steps=EVERY, directory=os.environ["DIRECTORY"]
)
for epoch in training.epochs(5):
    with Join([model]):
        for number in training.batches():
            model(torch.rand(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            note("stepped", epoch, number)
            training.step()
            time.sleep(0.03)
    note("ended", epoch, torch.rand(1).item())
torch.save([network.state_dict(), optimizer.state_dict()], f"{os.environ['HERE']}/result-{rank}")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_with_different_numbers_of_batches_save_together_and_come_to_the_same_numbers_after_a_kill(
    size: int, tmp_path: Path
) -> None:
    lengths, every = random.sample(range(2, 9), size), random.randint(2, 4)
    print("batches of each rank:", lengths, "steps between two saves:", every)
    source = JOINED.replace("LENGTHS", str(lengths)).replace("EVERY", str(every))
    calm, killed = (Script(tmp_path / name, source, size) for name in ("calm", "killed"))
    try:
        lines = calm.run_and_count()
        kill = draw_kill(size, lines)
        print(kill)
        if any(killed.run(kill)):
            assert killed.run() == [0] * size, killed.story()
        for rank in range(size):
            Attempts(killed.directory, rank).check(Attempts(calm.directory, rank))
        said = calm.story()
        assert f"saved step={5 * lengths[0]} " in said
        assert said.count(" is not saved: ") == said.count("the ranks agree on when to save from now on") <= 1
    except AssertionError as error:
        error.add_note(f"{calm.story()}\n{killed.story()}")
        raise
    finally:
        calm.end()
        killed.end()
