"""Calls a function for `ddpjob.submit(function, arguments)` and `ddpjob.run`, as the script of each rank.

The script that DDPJob sends with the function's code imports the function and passes it to `call`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.reporting.result import set_result

ARGUMENTS = "ddpjob_arguments.json"
"""The file with the arguments, beside the script."""


def call(function: Callable[..., Any]) -> None:
    """Calls a function with the arguments in ARGUMENTS; what rank 0 returns becomes the job's result.

    A function that returns None leaves a result that it has set itself.

    Raises:
        ConfigError: What the function returns is not JSON.
    """
    arguments = json.loads(Path(sys.argv[0]).with_name(ARGUMENTS).read_bytes())
    value = function(**arguments)
    if value is None:
        return
    try:
        set_result(value)
    except ConfigError as error:
        raise ConfigError(f"{function.__qualname__} returned no result: {error}") from None
