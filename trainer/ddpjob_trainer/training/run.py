"""A run from its configuration to its end: builds all parts in the order in which they need each other."""

import os
from collections.abc import Callable
from typing import Any

import torch
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.cores import threads_of_each
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.stopping import StopRequest
from ddpjob_rank.world import World
from torch import nn
from torch.utils.data import Dataset

from ddpjob_trainer.checkpoint import state
from ddpjob_trainer.checkpoint.saving import Saver, restore_random
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.data.batches import shares
from ddpjob_trainer.data.feed import Divided, Feed, Uneven
from ddpjob_trainer.data.loader import Loader, sample_count
from ddpjob_trainer.data.order import Order, Shuffled
from ddpjob_trainer.group.agreement import Agreement
from ddpjob_trainer.group.joining import process_group
from ddpjob_trainer.model import amp, exactness, modes
from ddpjob_trainer.model.checks import check_optimizer, check_sampler
from ddpjob_trainer.model.compression import PowerSGD, compress
from ddpjob_trainer.model.parallel import averaged, laid_out, parallel, warm_up
from ddpjob_trainer.options.mode import DATA_PARALLEL
from ddpjob_trainer.position import Position
from ddpjob_trainer.random_state import seed_all
from ddpjob_trainer.recording.facts import facts
from ddpjob_trainer.recording.progress import Progress
from ddpjob_trainer.recording.recorder import Recorder
from ddpjob_trainer.recording.step_times import StepTimes
from ddpjob_trainer.task import Task, load_task

from .loop import Loop
from .stepping import Stepper


def run(config: TrainConfig, world: World, position: Position, stop: StopRequest) -> None:
    """Trains as asked, from the newest checkpoint if there is one; `position` says how far, even after an error."""
    reporting.tell_activities()
    _set_threads(config, world)
    exactness.prepare(config.computing)
    seed_all(config.seed)
    position.activity = "loading the data"
    task = load_task(config)
    feeding = _feeding(config, task, world)
    position.activity = "joining the process group"
    with process_group(world, config) as device:
        position.activity = "starting"
        reporting.tell_steps()  # From here on ranks wait for each other.
        device = modes.home(config.mode, device)  # noqa: PLW2901  (a GPU of this process's own choice)
        exactness.tell(device, leads=world.leads)
        loop = _prepare(
            config=config,
            world=world,
            position=position,
            stop=stop,
            task=task,
            feeding=feeding,
            device=device,
        )
        stop.loop_begins()
        loop.run()


def _prepare(
    *,
    config: TrainConfig,
    world: World,
    position: Position,
    stop: StopRequest,
    task: Task,
    feeding: Callable[[torch.device], Feed],
    device: torch.device,
) -> Loop:
    """Builds the model and everything around it, and restores the newest checkpoint."""
    feed, test_data = feeding(modes.output_device(config.mode, device)), task.test_data()
    model = laid_out(task.model(), config, world, device)
    wrapped, compression = _wrapped(model, config, world, device)
    seed_all(config.seed, world.rank, 0)
    if not world.alone:
        warm_up(wrapped, task, iter([feed.first()]), amp.autocast(config.computing.precision, device))
    recorder = Recorder(config.recording.directory if world.leads else None, config.attempt)
    saver = Saver(config, config.checkpoint, world, feed, recorder) if config.checkpoint else None
    saved = saver.resume(position) if saver else None
    epochs = config.epochs or (None if feed.left() is None else task.epochs)
    total_steps = _total_steps(position, feed, epochs, config.max_steps)
    task.steps_per_epoch = feed.left() or total_steps
    learner = _learner(config, task, model, compression=compression, total_steps=total_steps, device=device)
    check_optimizer(learner.optimizer, model, aloud=world.leads)
    if saved:
        _restore(learner, saved, config, world, position=position, device=device)
    stepper = _stepper(config, task, learner, wrapped, batch_size=feed.batch_size, device=device)
    recorder.begin(position.step, facts(config, world, device, total_steps=total_steps, epochs=epochs))
    if world.leads and position.step >= total_steps:
        say(f"complete: all {total_steps} steps have been trained before")
    return Loop(
        task=task,
        world=world,
        device=device,
        learner=learner,
        stepper=stepper,
        feed=feed,
        test_data=None if test_data is None else _loader(test_data, config, task, world, device),
        epochs=epochs,
        position=position,
        progress=_progress(config, world, position, feed.batch_size, (epochs, total_steps)),
        saver=saver,
        stop=stop,
        agreement=Agreement(world),
        times=stepper.times,
        recorder=recorder,
    )


def _wrapped(
    model: nn.Module, config: TrainConfig, world: World, device: torch.device
) -> tuple[nn.Module, PowerSGD | None]:
    """The model as a step calls it, and the part of its communication that has a state."""
    if not world.alone:
        ddp = parallel(model, config.communication, device)
        return ddp, compress(ddp, config.communication)
    return modes.data_parallel(model, config.mode, device) if config.mode.mode == DATA_PARALLEL else model, None


def _learner(
    config: TrainConfig,
    task: Task,
    model: nn.Module,
    *,
    compression: PowerSGD | None,
    total_steps: int,
    device: torch.device,
) -> state.Learner:
    """Everything that changes while a model learns, as it is at the first step."""
    optimizer = task.optimizer(model)
    if compression:
        compression.begin(total_steps)
    return state.Learner(
        model,
        optimizer,
        task.scheduler(optimizer, total_steps),
        amp.scaler(config.computing.precision, device),
        averaged(model, config.optimisation.model_ema_decay),
        compression,
    )


def _restore(
    learner: state.Learner,
    saved: state.State,
    config: TrainConfig,
    world: World,
    *,
    position: Position,
    device: torch.device,
) -> None:
    """Goes on where a checkpoint was made: with its weights, and with all that determines the next steps."""
    others = state.load(learner, saved)
    if others and world.leads:
        say(f"the optimizer goes on as the checkpoint says: {'; '.join(others)}")
    state.load_compression(learner, saved, world, device)
    restore_random(saved["random"], config, world, position.step)


def _stepper(
    config: TrainConfig,
    task: Task,
    learner: state.Learner,
    wrapped: nn.Module,
    *,
    batch_size: int,
    device: torch.device,
) -> Stepper:
    """Trains the learner by steps of this many samples of this process."""
    parts = config.optimisation.gradient_accumulation_steps
    return Stepper(
        task=task,
        learner=learner,
        model=wrapped,
        autocast=amp.autocast(config.computing.precision, device),
        shares=shares(batch_size, parts),
        clip_grad_norm=config.optimisation.clip_grad_norm,
        times=StepTimes(wrapped, device, parts),
    )


def _progress(
    config: TrainConfig, world: World, position: Position, batch_size: int, whole: tuple[int | None, int]
) -> Progress:
    """Reports where training is, in epochs and steps; names the rank if several share one log."""
    rank = world.rank if world.local_world_size > 1 else None
    return Progress(position, *whole, batch_size=batch_size, log_every=config.log_every, rank=rank)


def _feeding(config: TrainConfig, task: Task, world: World) -> Callable[[torch.device], Feed]:
    """The run's input, once its device is known: a mistake is reported before processes wait for each other.

    Raises:
        ConfigError: There is no data, or it does not fit an option.
    """
    parts = config.optimisation.gradient_accumulation_steps
    batches = task.train_loader(world.rank, world.world_size)
    if batches is None:
        data = task.train_data()
        order = order_of(config, task, data, world)
        return lambda device: Divided(_loader(data, config, task, world, device), order, parts)
    check_sampler(batches)
    if config.global_batch_size or parts > 1:
        raise ConfigError(
            "--global-batch-size and --gradient-accumulation-steps are for train_data: a train_loader makes its"
            " batches by itself"
        )
    size = config.batch_size or task.batch_size
    return lambda device: Uneven(batches, world, device, batch_size=size, seed=config.seed)


def _loader(data: Dataset[Any], config: TrainConfig, task: Task, world: World, device: torch.device) -> Loader:
    workers = _workers(config, task, world)
    return Loader(data, seed=config.seed, device=device, workers=workers, inputs=task.inputs)


def order_of(config: TrainConfig, task: Task, data: Dataset[Any], world: World) -> Order:
    """The order in which a process sees the samples of a task's training set."""
    own = (config.batch_size or task.batch_size) * config.optimisation.gradient_accumulation_steps
    whole = config.global_batch_size or own * world.world_size
    shuffle = data.shuffled if isinstance(data, Shuffled) else None
    return Order(sample_count(data), whole, world.rank, world.world_size, config.seed, shuffle)


def _total_steps(position: Position, feed: Feed, epochs: int | None, most: int | None) -> int:
    """The number of the last step: what is finished, the rest of this epoch and the epochs after it, up to `most`.

    If it is unknown how long an epoch is, the last one may end earlier.

    Raises:
        ConfigError: It cannot be known.
    """
    left, whole = feed.left(position.samples), feed.left()
    if epochs is not None and position.epoch > epochs:
        return position.step
    if epochs is None or left is None or whole is None:
        if most is None:
            raise ConfigError("the task's train_loader has no len(): say by --max-steps how long to train")
        return max(position.step, most)
    total = position.step + left + (epochs - position.epoch) * whole
    return total if most is None else max(position.step, min(total, most))


def _workers(config: TrainConfig, task: Task, world: World) -> int:
    """How many processes fetch samples for this one."""
    asked = task.workers if config.loading.workers is None else config.loading.workers
    if asked is not None:
        return asked
    # A rank may have cores of its own: then it has as many threads, and a share of them would be too few.
    return max(torch.get_num_threads(), threads_of_each(world.local_world_size))


def _set_threads(config: TrainConfig, world: World) -> None:
    """This process's share of the cores that torch would use, unless it was set elsewhere (OMP_NUM_THREADS)."""
    if config.threads or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(config.threads or max(1, torch.get_num_threads() // world.local_world_size))
