"""Resources that the operator's administrator has count as GPUs: for a job that starts, and not for one that runs."""

from ddpjob_operator.api import Backend

from .builders import Moment, a_job

SHARED = "nvidia.com/gpu.shared"
TRAINER = {"name": "trainer", "image": "trainer:1", "resources": {"limits": {SHARED: 2}}}
sharing = a_job(nodes=2, template={"spec": {"containers": [TRAINER]}})
counted = sharing.allows(gpu_resources=(SHARED,))


def world(moment: Moment) -> tuple[int | None, Backend | str | None]:
    return moment.status.procs_per_node, moment.status.backend


def test_what_the_administrator_names_counts_for_processes_and_backend() -> None:
    assert world(sharing.decided()) == (1, Backend.GLOO)
    assert world(counted.decided()) == (2, Backend.NCCL)


def test_a_job_keeps_what_it_started_with_through_a_restart_and_a_new_size() -> None:
    runs = sharing.running().allows(gpu_resources=(SHARED,))
    assert runs.decision.empty
    assert world(runs.fails(1).decided().restarted()) == (1, Backend.GLOO)
    resized = runs.asks(nodes=3).decided()
    assert (resized.status.nodes, *world(resized)) == (3, 1, Backend.GLOO)


def test_a_job_that_is_resumed_starts_with_what_counts_by_now() -> None:
    suspended = sharing.running().suspended().allows(gpu_resources=(SHARED,))
    assert world(suspended.asks(suspend=False).decided()) == (2, Backend.NCCL)
