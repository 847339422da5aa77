"""What the template has imported when it forks; see forking.py.

It runs not a single tensor operation, as a zygote must not: a child of a process with OpenMP's threads hangs.
"""

import gc
from importlib import import_module

for name in (
    "encodings.idna",
    "torch._dynamo",
    "ddpjob_trainer.main",
    "ddpjob_trainer.recording.tensorboard",
    "ddpjob_trainer.supervisor.main",
    "ddpjob_trainer.supervisor.starting.zygote",
    "ddpjob_trainer.training.run",
    "ddpjob_trainer.workloads.convnet",
    "ddpjob_trainer.workloads.mlp",
    "tests.training.forking",
    "tests.training.ranks",
):
    import_module(name)
gc.collect()
gc.freeze()  # A collection in a child would write to all of this, and so copy it: three quarters of a rank's time.
