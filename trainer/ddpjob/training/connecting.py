"""Opens the checkpoints of a training run: connects the ranks, and lets signals stop all after the same step."""

import torch.distributed as dist
from ddpjob_rank.console import say
from ddpjob_rank.reporting.group_agreement import Wish, agreement_of_group
from ddpjob_rank.reporting.save_request import on_save_request

from ddpjob.group.group_world import world_of_group

from .named import Named
from .save_settings import SaveSettings
from .saver import TrainingSaver

_current: TrainingSaver | None = None
_opened = 0
"""How many training runs have begun in this process."""


def opened(whose: str, named: Named, settings: SaveSettings, *, step: str | None = None) -> TrainingSaver:
    """Opens the saver of the run that begins now. It replaces the saver of an earlier run in this process.

    Args:
        whose: The name of the class that the program has called, for messages.
        named: The objects that are saved.
        settings: Where and when to save.
        step: The name of the function that all ranks have to call equally often, for messages; by default `whose`.

    Raises:
        ConfigError: There is no process group although there are several processes, or the directory cannot be used.
    """
    global _current, _opened  # noqa: PLW0603  (a process has one training)
    if _current:
        _current.close()
        _current = None
    world = world_of_group(whose)
    _opened += 1
    agreement = agreement_of_group(f"training-{_opened}", step or whose)
    group = None if world.alone else dist.new_group(backend="gloo")
    saver = TrainingSaver(settings, world, agreement, group, check_finite=named.check_finite, divided=named.divided)
    saver.listen()
    if world.leads and not saver.saves:
        say(f"{whose}: nothing is saved: pass directory=…, or give the job a checkpoint directory")
    on_save_request((lambda: agreement.wish(Wish.SAVE)) if saver.saves else None)
    _current = saver
    return saver
