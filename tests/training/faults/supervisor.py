"""`python -m tests.training.faults.supervisor`: the supervisor, less patient, with a preflight that can be held."""

import os

from ddpjob_rank import limits
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.gang import follower
from ddpjob_supervisor.main import main

OTHER_AT_LEAST = 10.0
"""Instead of 600: how long the first step, an evaluation, a save and the end may take."""

limits.TIMES_TRAINING, limits.OTHER_AT_LEAST = 2.0, OTHER_AT_LEAST
follower.COLLECTIVE = Program(
    module=True,
    name="tests.training.faults.collective",
    arguments=("--timeout-seconds", os.environ.get("FAULTS_PATIENCE_SECONDS", "60")),
)
main()
