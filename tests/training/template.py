"""What the template has imported when it forks; see forking.py.

It runs not a single tensor operation, as a zygote must not: a child of a process with OpenMP's threads hangs.
"""

from importlib import import_module

from ddpjob_rank.importing import uncollected

NAMES = (
    "encodings.idna",
    "torch._dynamo",
    "ddpjob_trainer.main",
    "ddpjob_supervisor.main",
    "ddpjob_supervisor.node.zygote",
    "ddpjob_trainer.train",
    "ddpjob_examples.convnet",
    "ddpjob_examples.mlp",
    "tests.training.forking",
    "tests.training.ranks",
)
with uncollected():  # A collection in a child would write to all of it, and so copy it: most of a rank's time.
    for name in NAMES:
        import_module(name)
