"""The variables of a trainer, packed or not."""

from typing import Any

from ddpjob_rank.parsing import unpack_variables


def variables_of(container: dict[str, Any]) -> dict[str, str]:
    """The variables of a container as a supervisor in it sees them."""
    env = {variable["name"]: variable.get("value", "") for variable in container.get("env", ())}
    unpack_variables(env)
    return env
