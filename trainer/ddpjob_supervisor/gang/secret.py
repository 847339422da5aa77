"""The job's secret: a file that only the job can read.

Any process that has the secret counts as a supervisor of the job.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError

from .secret_file import NAME, secret_in, users_secret
from .settings import Settings

HOW = "(umask 077; openssl rand -hex 32 > FILE)"


def with_secret(settings: Settings, env: Mapping[str, str]) -> Settings:
    """Returns a supervisor's settings with the secret of its job.

    If the environment names no secret file, and all nodes are on this machine, the secret is the one that all jobs of
    this user on this machine share.

    Raises:
        ConfigError: The secret cannot be read or created, has a wrong length, or can be read by others; or no secret
            file is named, although this supervisor talks to other machines.
    """
    if settings.nodes == 1:
        return settings
    if name := env.get(Env.SECRET_FILE):
        file = Path(name)
        secret = _named(file, in_a_job=settings.in_a_job)
    elif settings.reaches_out:
        raise _missing(settings)
    else:
        file = Path(tempfile.gettempdir(), f"ddpjob-{os.geteuid()}", NAME)
        secret = _users(file.parent)
    return replace(settings, secret=secret, secret_file=file)


def _named(file: Path, *, in_a_job: bool) -> bytes:
    try:
        # In a pod the file's mode does not matter, because only the trainer's processes can see the mounted file.
        return secret_in(file, private=not in_a_job)
    except OSError as error:
        advice = "" if in_a_job else f"; make one with {HOW}"
        raise ConfigError(
            f"{file} ({Env.SECRET_FILE}) cannot be used as a secret: {error.strerror}{advice}"
        ) from None


def _users(directory: Path) -> bytes:
    try:
        return users_secret(directory)
    except OSError as error:
        raise ConfigError(
            f"the nodes that run on this machine cannot keep their secret in {directory}: {error.strerror}; either"
            f" remove the directory, or make a secret with {HOW} and start each node with --secret-file FILE"
        ) from None


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
        f" nodes share, and add --secret-file FILE on each node, or set {Env.SECRET_FILE}; if all nodes are on one"
        f" machine, set {Env.MASTER_ADDR} to 127.0.0.1 instead"
    )
