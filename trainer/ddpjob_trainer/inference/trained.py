"""Loads a trained model from a checkpoint."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ddpjob.checkpoint.encoding import first_lines
from ddpjob.checkpoint.opening import read_newest
from ddpjob.random_state import seed_all
from ddpjob.training.named import difference
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from torch import Tensor, nn

from ddpjob_trainer.checkpoint import state
from ddpjob_trainer.config import TrainConfig, read_config, train_parser
from ddpjob_trainer.task import BUILT_IN, Task, load_task


@dataclass(frozen=True, slots=True)
class Trained:
    """A checkpoint's weights for evaluation, by their names in the task's model, and the flags of its training."""

    checkpoint: str
    """Its path or URL."""
    step: int
    weights: dict[str, Tensor]
    arguments: tuple[str, ...]
    """The command line of the training."""

    def config(self, flags: Sequence[str]) -> TrainConfig:
        """The configuration of the training, overridden by `flags`.

        Raises:
            ConfigError: A flag is wrong or contradicts the training's flags; or the task of the training is not built
                in, and `flags` do not name it.
        """
        # The checkpoint flags need a directory, which the training may have taken from the environment.
        directory = self.checkpoint.rpartition("/")[0] or "."
        config = read_config(flags, {Env.CHECKPOINT_DIR: directory}, former=self.arguments)
        # A task is code. Whoever can write a checkpoint must not be able to choose the code that its readers run.
        if config.workload not in {*BUILT_IN, train_parser().parse_args(flags).workload}:
            raise ConfigError(
                f"{self.checkpoint} was trained with --workload {config.workload}, but a checkpoint may not choose "
                "which code runs: add the flag if you trust this code"
            )
        return config

    def model(self, task: Task) -> nn.Module:
        """The task's model with these weights, in evaluation mode.

        Raises:
            ConfigError: The weights do not fit the task's model.
        """
        model = task.model()
        try:
            model.load_state_dict(self.weights)
        except RuntimeError as error:
            differs = difference(model.state_dict(), self.weights) or first_lines(error)
            raise ConfigError(
                f"{self.checkpoint} is from another model than --workload {task.config.workload} builds: {differs}"
            ) from error
        return model.eval()


def task_of(config: TrainConfig) -> Task:
    """The task of a training, built with the same seed, so that the same random samples are held out.

    Raises:
        ConfigError: The task does not exist, or its data is missing.
    """
    seed_all(config.seed)
    return load_task(config)


def load(address: str | os.PathLike[str]) -> Trained:
    """Loads the newest checkpoint in a directory or below a URL, or the checkpoint that `address` names.

    Raises:
        ConfigError: There is no valid checkpoint, or the address cannot be used.
        CheckpointUnusableError: The newest checkpoint needs another version of this program.
        StorageUnavailableError: A checkpoint cannot be read now.
    """
    found = read_newest(address)
    return Trained(found.location, found.manifest.step, state.evaluated(found.state), found.manifest.arguments)
