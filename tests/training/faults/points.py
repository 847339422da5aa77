"""What both programs of the fault table have: notes of starts and steps, and the point at which a save is written."""

import os
import time
from pathlib import Path
from typing import Any

from ddpjob.checkpoint import writer

from tests.training.faults.holds import DIRECTORY, reach

STEPS_OF_AN_EPOCH = 10


def note(what: str, number: int) -> None:
    words = (what, os.environ["RANK"], os.environ["DDPJOB_ATTEMPT"], number, time.time())
    file = os.open(Path(os.environ[DIRECTORY]) / "noted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


_encode = writer.encode


def _encode_and_reach(content: Any, file: Any) -> None:
    _encode(content, file)
    reach("save")  # All is written, and nothing of it counts yet.


writer.encode = _encode_and_reach
