"""What all programs of the fault table have: notes of starts and steps, and the points of a save."""

import os
import time
from pathlib import Path
from typing import Any

from ddpjob.checkpoint import writer
from ddpjob.training.saver import TrainingSaver

from tests.training.faults.holds import DIRECTORY, reach

STEPS_OF_AN_EPOCH = 10


def note(what: str, number: int) -> None:
    words = (what, os.environ["RANK"], os.environ["DDPJOB_ATTEMPT"], number, time.time())
    file = os.open(Path(os.environ[DIRECTORY]) / "noted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


_encode, _save = writer.encode, TrainingSaver._save


def _encode_and_reach(content: Any, file: Any) -> None:
    _encode(content, file)
    reach("save")  # All is written, and nothing of it counts yet.


def _save_and_reach(saver: TrainingSaver, *arguments: Any, **more: Any) -> None:
    _save(saver, *arguments, **more)
    reach("saved its part")


writer.encode = _encode_and_reach
TrainingSaver._save = _save_and_reach  # type: ignore[method-assign]
