"""With which exit code a supervisor leaves once its ranks have ended."""

import pytest
from ddpjob_supervisor.gang.exit_verdict import Membership, Verdict, of_incident, once_ended
from ddpjob_supervisor.gang.messages import End, Incident

DONE, SAVED, INTERRUPTED = End(0, 0, 1.0), End(0, 205, 1.0), End(1, 130, 1.0)
FAILED = End(0, 3, 1.0, "Application", "its own")
FOLLOWING, LEAVING, DISMISSED = Membership.FOLLOWING, Membership.LEAVING, Membership.DISMISSED


@pytest.mark.parametrize(
    ("membership", "ends", "connected", "verdict"),
    [
        (FOLLOWING, (FAILED,), True, None),
        (FOLLOWING, (DONE,), False, None),
        (LEAVING, (DONE,), True, None),
        (LEAVING, (DONE,), False, Verdict(205)),
        (LEAVING, (SAVED, INTERRUPTED), True, Verdict(205)),
        (LEAVING, (FAILED,), True, Verdict(3, FAILED)),
        (LEAVING, (), True, Verdict(205)),
        (DISMISSED, (DONE,), True, Verdict(0)),
        (DISMISSED, (DONE, SAVED), False, Verdict(205)),
        (DISMISSED, (DONE, FAILED), False, Verdict(3, FAILED)),
    ],
)
def test_once_its_ranks_have_ended_a_supervisor_leaves_with_their_code_unless_the_coordinator_has_the_next_word(
    membership: Membership, ends: tuple[End, ...], verdict: Verdict | None, *, connected: bool
) -> None:
    done = {end.exit_code for end in ends} == {0}
    assert once_ended(membership, ends, done=done, connected=connected) == verdict


def test_a_pod_whose_rank_did_not_fail_first_reports_that_it_has_lost_the_one_that_did() -> None:
    incident = Incident(1, 2, End(5, 2, 7.0, "ConfigError", "no such workload", step=40))
    verdict = of_incident(incident, node=0, rank=0, failed_first="rank 5")
    assert (verdict.code, verdict.incident) == (204, incident)
    assert verdict.failure == End(0, 204, 7.0, "PeerLost", "rank 5 failed: ConfigError", step=40)
