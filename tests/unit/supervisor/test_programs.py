"""What the supervisor starts by the name of a module: nothing else says that there is one of this name."""

from importlib.util import find_spec

import pytest
from ddpjob_supervisor.node.cold import COMMAND
from ddpjob_supervisor.node.zygote_process import ZYGOTE
from ddpjob_supervisor.preflight.running import COLLECTIVE, COUNTING


@pytest.mark.parametrize("module", [COMMAND[-1], ZYGOTE, COLLECTIVE.name, COUNTING])
def test_a_module_that_is_run_by_its_name_exists(module: str) -> None:
    assert find_spec(module)
