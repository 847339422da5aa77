"""Counts the GPUs that a process of this node sees: `python -m ddpjob_preflight.counting FILE`.

It runs in a process of its own, because counting GPUs may initialize CUDA, which must not happen in the zygote.
"""

import dataclasses
import json
import sys
from pathlib import Path

import torch
from ddpjob_rank.failure.failure_report import last_line
from ddpjob_supervisor.preflight.gpus import VisibleGpus


def main() -> None:
    """Writes the number of GPUs, and the error if there is one, as a JSON object into the file."""
    Path(sys.argv[1]).write_text(json.dumps(dataclasses.asdict(_look())), encoding="utf-8")


def _look() -> VisibleGpus:
    count = torch.cuda.device_count()
    if count:
        return VisibleGpus(count)
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return VisibleGpus(
            0, str(error).partition(". ")[0] if len(str(error).splitlines()) == 1 else last_line(error)
        )
    return VisibleGpus(0)


if __name__ == "__main__":
    main()
