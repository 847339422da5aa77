"""`python -m tests.training.faults.supervisor`: the supervisor, less patient, with a preflight that can be held."""

import os

from ddpjob_trainer.supervisor.gang import follower
from ddpjob_trainer.supervisor.main import main
from ddpjob_trainer.supervisor.starting.program import Program
from ddpjob_trainer.supervisor.watching import limits

OTHER_AT_LEAST = 10.0
"""Instead of 600: how long the first step, an evaluation, a save and the end may take."""

limits.TIMES_TRAINING, limits.OTHER_AT_LEAST = 2.0, OTHER_AT_LEAST
follower.COLLECTIVE = Program(
    module=True,
    name="tests.training.faults.collective",
    arguments=("--timeout-seconds", os.environ.get("FAULTS_PATIENCE_SECONDS", "60")),
)
main()
