"""The job's secret: a file that only the job can read. Anything that has it counts as one of its supervisors."""

import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ddpjob_rank.console import counted
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError

from .settings import Settings

LEAST_BYTES = 32
HOW = "(umask 077; openssl rand -hex 32 > FILE)"


def with_secret(settings: Settings, env: Mapping[str, str]) -> Settings:
    """A supervisor's settings with the secret of its job.

    Raises:
        ConfigError: It cannot be read, is too short or can be read by others; or there is none, and processes on
            other machines could talk to this supervisor.
    """
    secret = _read(env, in_a_job=settings.in_a_job) if settings.nodes > 1 else b""
    if settings.reaches_out and not secret:
        raise _missing(settings)
    return replace(settings, secret=secret)


def _read(env: Mapping[str, str], *, in_a_job: bool) -> bytes:
    name = env.get(Env.SECRET_FILE)
    if not name:
        return b""
    path = Path(name)
    try:
        secret, mode = path.read_bytes().strip(), path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"cannot read the job's secret {path} ({Env.SECRET_FILE}): {error.strerror}") from None
    if len(secret) < LEAST_BYTES:
        raise ConfigError(
            f"the secret in {path} has {counted(len(secret), 'byte')}, and needs {LEAST_BYTES}: make it with {HOW}"
        )
    # In a pod it is mounted where only the trainer's own processes see it, and may have another mode.
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not in_a_job:
        raise ConfigError(f"others can read the secret {path} too: make a new one with {HOW}")
    return secret


def _missing(settings: Settings) -> ConfigError:
    if settings.in_a_job:
        return ConfigError(
            f"{Env.SECRET_FILE} is not set, and without a secret anyone who reaches port {settings.control_port}"
            " could take over the training: this image needs an operator that gives each job a secret; upgrade the"
            " operator"
        )
    return ConfigError(
        "the supervisors are on several machines, and without a secret anyone who reaches port"
        f" {settings.control_port} of node 0 could take over the training: make one with {HOW} on a disk that all"
        f" nodes share, and add --secret-file FILE on each of them, or set {Env.SECRET_FILE}"
    )
