"""How a run saves and resumes: the library's saver, with what a run adds to its checkpoints and expects of them."""

import os
from collections.abc import Collection
from dataclasses import replace

import torch
from ddpjob.checkpoint.encoding import StateDict
from ddpjob.checkpoint.finite import check_parameters
from ddpjob.checkpoint.reading import PATIENCE_SECONDS, Found
from ddpjob.checkpoint.writer import Written
from ddpjob.training.save_settings import SaveSettings, stop_seconds
from ddpjob.training.saver import Saved, TrainingSaver
from ddpjob_rank.console import say, warn
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.reporting.agreement import Agreement
from ddpjob_rank.world import World

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.data.data_identity import UNKNOWN, DataIdentity
from ddpjob_trainer.model.learner import Learner
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.recorder import Recorder

from . import state

SEEN_TWICE = "some samples are seen twice, and others never"

OTHER_DATA_REMEDY = (
    "Go on with the same data, or name another --checkpoint-dir; with --allow-other-data, training goes on with "
    "the present data"
)

PATIENCE_SHARE = 0.25
"""How long rank 0 keeps trying to read a checkpoint, as a fraction of the timeout of collectives."""


def open_saver(
    config: TrainConfig,
    world: World,
    agreement: Agreement,
    *,
    global_batch: int,
    position: Position,
    recorder: Recorder,
    data: DataIdentity = UNKNOWN,
    sound: Collection[str] = (),
) -> TrainingSaver:
    """Opens the saver of a run.

    Args:
        config: The run's settings. Without a checkpoint directory, nothing is saved.
        world: This process's place.
        agreement: The agreement of all ranks.
        global_batch: The number of samples of a step, across all processes.
        position: Where the run is. Its activity is `saving` during a save.
        recorder: Records the saves.
        data: Identifies the training data.
        sound: The names of the parameters that must be finite in a checkpoint.

    Raises:
        ConfigError, StorageError: The directory cannot be used.
    """
    checkpoint = config.checkpoint

    def check_finite(shared: StateDict) -> None:
        check_parameters(shared["model"], sound)

    def check_found(found: Found[StateDict]) -> None:
        assert checkpoint, "only a run that saves checkpoints looks for one"
        _compare(found, data, global_batch, allow_other_data=checkpoint.allow_other_data)

    def record_saved(written: Written) -> None:
        manifest = written.manifest
        recorder.add(
            "saved", manifest.step, epoch=manifest.epoch, checkpoint=written.location, seconds=written.seconds
        )

    return TrainingSaver(
        _settings(config),
        world,
        agreement,
        check_finite=check_finite,
        check_found=check_found,
        saved=record_saved,
        activity=position.during,
        globalBatchSize=global_batch,
        arguments=config.arguments,
        seed=data.seed,
        dataLength=data.length,
        dataFingerprint=data.fingerprint,
    )


def _settings(config: TrainConfig) -> SaveSettings:
    checkpoint = config.checkpoint
    known = SaveSettings(uid=config.uid, attempt=config.attempt, stop_seconds=stop_seconds(os.environ))
    if checkpoint is None:
        return known
    return replace(
        known,
        directory=str(checkpoint.directory),
        every_steps=checkpoint.every_steps,
        every_seconds=checkpoint.every_seconds,
        keep=checkpoint.keep,
        mean_time_to_failure=checkpoint.mean_time_to_failure,
        waits=True,  # Each save must be of the requested step, so none is skipped.
        start_over=checkpoint.start_over,
        # Meanwhile the other ranks wait in a collective. If it timed out, one of them would seem to have failed.
        retry_seconds=min(PATIENCE_SECONDS, config.group.collective_seconds * PATIENCE_SHARE),
    )


def _compare(found: Found[StateDict], data: DataIdentity, global_batch: int, *, allow_other_data: bool) -> None:
    """Refuses to train on other data than the checkpoint's, unless this is allowed. Logs any other differences.

    Raises:
        ConfigError: The data differs, and this is not allowed.
    """
    then = found.manifest
    within_epoch = data.within_epoch(then.samples, global_batch)
    if differences := _data_of(then).differences(data):
        problem = f"checkpoint {found.location} was saved with other data: {'; '.join(differences)}"
        if not allow_other_data:
            raise ConfigError(f"{problem}. {OTHER_DATA_REMEDY}")
        warn(f"{problem}{f'. In the rest of epoch {then.epoch} {SEEN_TWICE}' if within_epoch else ''}")
    elif then.seed is None and within_epoch:
        warn(
            f"checkpoint {found.location} is from an older version, which ordered an epoch differently. In the rest"
            f" of epoch {then.epoch} {SEEN_TWICE}"
        )
    if then.globalBatchSize != global_batch:
        say(f"a step now takes {global_batch} samples across all processes, not {then.globalBatchSize} as before")


def _data_of(manifest: Manifest) -> DataIdentity:
    return DataIdentity(manifest.seed, manifest.dataLength, manifest.dataFingerprint)


def restore(learner: Learner, saved: Saved, saver: TrainingSaver, seed: int, device: torch.device) -> None:
    """Restores the weights and all other state that determines the next steps.

    Raises:
        ConfigError: The state belongs to another model or optimizer.
    """
    differing = state.load(learner, saver.shared_state(saved, {}), saved.step)
    if differing and saver.world.leads:
        say(f"the optimizer keeps the settings of the checkpoint: {'; '.join(differing)}")
    state.load_compression(learner, saved.ranks, saver.world, device)
    saver.restore_random(saved, seed)
