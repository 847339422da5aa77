"""Lets Hugging Face's Trainer resume and stop in a job. The Trainer's own checkpoints stay as they are.

`Trainer.train` resumes from the newest complete checkpoint. If the program does not pass `resume_from_checkpoint`,
only checkpoints of this job count; if it does, all checkpoints in `output_dir` count. Rank 0 chooses the checkpoint
for all ranks. If the job is told to stop, the Trainer saves after the same step on all ranks, and the program ends.
This replaces the Trainer's just-in-time checkpoint, in which each rank acts on its own signal.
"""

import functools
import itertools
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from ddpjob_rank.console import say
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.importing import once_imported
from ddpjob_rank.manifests.unusable import BrokenError
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.group_agreement import Wish, agreement_of_group
from ddpjob_rank.reporting.save_request import on_save_request
from transformers.trainer_callback import TrainerCallback

from ddpjob.checkpoint.trainer_directory import check, mark, newest_of_trainer
from ddpjob.group.group_world import world_of_group

WHOSE = "Trainer.train"
JUST_IN_TIME = "transformers.trainer_jit_checkpoint"

Asked = str | os.PathLike[str] | bool | None
"""The values that a program passes as `resume_from_checkpoint`."""

CHOICE_SECONDS = 1800.0
"""How long the other ranks wait for rank 0 to choose a checkpoint. To choose, rank 0 reads some checkpoints."""


def install(trainer: Any) -> None:
    """Lets all Trainers of this process resume and stop. `trainer` is the module transformers.trainer."""
    trainer.DEFAULT_CALLBACKS.append(StopCallback)
    trainer.Trainer.train = _resuming(trainer.Trainer.train)
    once_imported(JUST_IN_TIME, _disarm)


class StopCallback(TrainerCallback):  # type: ignore[misc]  # mypy ignores the types of transformers.
    """Saves and stops after the same step on all ranks if the job is told to, and marks the job's checkpoints."""

    def __init__(self) -> None:
        self._stopped = False
        self._agreement: Any = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Connects the ranks."""
        self._agreement = agreement = agreement_of_group("trainer", WHOSE)
        request.stops_by(lambda: agreement.wish(Wish.STOP), always=False)
        on_save_request(lambda: agreement.wish(Wish.SAVE))

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Makes the Trainer save, or save and stop, if all ranks do so after this step."""
        decision = self._agreement.reached(next(_positions))
        if decision is not Wish.NOTHING:
            control.should_save = True
        if decision is Wish.STOP:
            request.notice_stop()
            self._stopped = control.should_training_stop = True

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Skips evaluation and saving after a stop: the last step is saved, and there is no time to evaluate."""
        if self._stopped:
            control.should_save = control.should_evaluate = False

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Marks the checkpoint as one of this job."""
        if args.process_index == 0:
            with suppress(OSError):  # The checkpoint was saved somewhere else, or has been removed.
                mark(Path(args.output_dir) / f"checkpoint-{state.global_step}", os.environ.get(Env.UID, ""))
        reporting.report(checkpoint=state.global_step)


_positions = itertools.count(1)
"""Numbers the steps of this process. The numbers go on rising if the process trains twice."""


def _resuming(train: Any) -> Any:
    """Wraps `Trainer.train` so that it resumes, and ends the program after a stop."""
    trained = set[Path]()

    @functools.wraps(train)
    def resuming(
        self: Any, resume_from_checkpoint: Asked = None, trial: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        directory = Path(self.args.output_dir).absolute()
        if trial is None and directory not in trained:  # A second training in one directory begins anew.
            trained.add(directory)
            resume_from_checkpoint = _agreed_checkpoint(directory, resume_from_checkpoint)
        try:
            result = train(self, resume_from_checkpoint, trial, *args, **kwargs)
        finally:  # From now on, a signal or a request would have no effect.
            request.stops_no_more()
            on_save_request(None)
        if request.stop_noticed() and self.state.global_step < self.state.max_steps:
            say(f"stopped on request after step {self.state.global_step}, which is saved in {directory}")
            raise SystemExit(ExitCode.SAVED_AND_STOPPED)
        return result

    return resuming


def _agreed_checkpoint(directory: Path, named: Asked) -> str | None:
    """The checkpoint from which all ranks resume. Rank 0 chooses it.

    Raises:
        ConfigError: This rank does not see the checkpoint that rank 0 sees.
    """
    world = world_of_group(WHOSE)
    if world.alone:
        return _chosen(directory, named)
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  (public only to init_process_group)
    key = f"ddpjob/{WHOSE}/{directory}"
    if world.leads:
        store.set(key, _chosen(directory, named) or "")
    else:
        store.wait([key], timedelta(seconds=CHOICE_SECONDS))
    checkpoint = store.get(key).decode() or None
    if checkpoint and not Path(checkpoint).is_dir():
        raise ConfigError(
            f"rank {world.rank} does not see {checkpoint}, but rank 0 resumes from it: put the Trainer's output_dir"
            " on storage that all nodes share"
        )
    return checkpoint


def _chosen(directory: Path, named: Asked) -> str | None:
    """The checkpoint to resume from.

    This is the checkpoint that the program names, if it is complete or outside of `directory`. Otherwise it is the
    newest complete checkpoint; if the program names none, the newest complete checkpoint of this job.
    """
    if isinstance(named, str | os.PathLike):
        path = Path(named).absolute()
        if path.parent != directory or _is_whole(path):
            return os.fspath(named)
    choice = newest_of_trainer(directory, None if named else os.environ.get(Env.UID, ""))
    if named or choice.found:
        choice.set_aside()
        say(f"resumed from {choice.found}" if choice.found else f"{directory} has no complete checkpoint")
    return str(choice.found) if choice.found else None


def _is_whole(path: Path) -> bool:
    try:
        check(path)
    except BrokenError:
        return False
    return True


def _disarm(module: Any) -> None:
    """Turns off the Trainer's just-in-time checkpoint, because the signal reaches each rank in a different step."""
    module.CheckpointManager.setup_signal_handler = lambda _: None
