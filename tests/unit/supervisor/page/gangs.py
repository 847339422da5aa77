"""A gang to look at."""

from ddpjob_supervisor.gang.messages import End, Incident
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.page.document import Gang, Memory
from ddpjob_supervisor.page.progress import Progress
from ddpjob_supervisor.page.stragglers import Straggler
from ddpjob_supervisor.watch.beat import BeatDocument

AT = 1_790_000_000.5
AT_AS_TEXT = "2026-09-21T14:13:20.500Z"

BEAT: BeatDocument = {
    "rank": 3,
    "node": 1,
    "step": 120,
    "stepAge": 0.02,
    "activity": "training",
    "epoch": 1,
    "loss": 0.31,
    "stepSeconds": 0.0200000004,
    "seconds": {"data": 0.001, "forward": 0.005},
    "memoryBytes": 1 << 30,
    "transport": "P2P, NET/IB",
    "slowed": "GPU 1 is slowed down: it is too hot",
    "metrics": {"learning_rate": 0.1},
    "attempt": 3,
}
KILLED = Incident(2, 1, End(3, 137, AT, "Application", "killed by SIGKILL", None, 120), False, 1, (0,))
PROGRESS = Progress(
    *(120, 1, 400, 0.31, AT, 0.02, 3200.04),
    attempt=3,
    since=AT,
    first=101,
    begins="FromCheckpoint",
    activity="Saving",
    activity_time=AT,
)
GANG = Gang(
    uid="u",
    nodes=2,
    procs_per_node=2,
    attempt=3,
    phase=Phase.RUNNING,
    since=AT,
    now=AT,
    first_step_seen=True,
    in_place_restarts=1,
    incidents=(KILLED,),
    beats=(BEAT, {"rank": 0, "node": 0}),
    progress=PROGRESS,
    slowest_node=1,
    stall_limit=480.04,
    last_point=7,
    checkpoint={"step": 100, "time": AT_AS_TEXT},
    stragglers=(Straggler(1, 3, 1.84, "GPU 1 is slowed down: it is too hot"),),
    memory=Memory(1000, 200),
)
