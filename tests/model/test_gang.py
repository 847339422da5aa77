"""Random histories of a gang.

Whatever happens to its supervisors and their links, no two attempts run at the same time, every end is explained, and
the gang runs again.

The coordinator is the real one. Supervisors, links and pods are simulated in gang.py, which checks what the
coordinator does. `make search` tries many more histories.
"""

from typing import Any

import pytest
from ddpjob_supervisor.gang.judging import KILLED_SECONDS, Limits
from ddpjob_supervisor.gang.messages import Beats, End, Leaving
from ddpjob_supervisor.gang.states import MemberState, Phase
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.seed import examples

from .gang import Gang, Link, Supervisor

FAILURES = {
    "killed": (137, "Application", None),
    "an exception": (1, "Application", "ImportError"),
    "a lost peer": (1, "PeerLost", "PeerLostError"),
    "bad input": (2, "ConfigError", "ConfigError"),
    "a store that is away": (1, "StorageUnavailable", "StorageUnavailableError"),
    "a code of the operator's": (42, "Application", None),
}
PLACES = [(None,), ("a", "b"), ("a", "b", "", "a", "b"), ("a", "b", "a", "b", None)]
"""The topology domains of the pods, in the order in which they are created. None stands for an older version."""

QUIET_ROUNDS = 5
"""The number of rounds of a second each. Together they are longer than the coordinator waits for anything."""


def some(name: str) -> Any:
    """A precondition: the given property of the history is not empty."""
    return precondition(lambda self: bool(getattr(self, name)))


class Histories(RuleBasedStateMachine):
    """One random history."""

    @initialize(
        nodes=st.sampled_from([1, 2, 3, 3, 4]),
        restarts=st.sampled_from([0, 1, 2, 50, 50]),
        window=st.sampled_from([20, 3600]),
        check=st.sampled_from([False, False, True]),
        domains=st.sampled_from(PLACES),
    )
    def begin(
        self,
        nodes: int,
        restarts: int,
        window: int,
        check: bool,  # noqa: FBT001
        domains: tuple[str | None, ...],
    ) -> None:
        limits = Limits(restarts, window, frozenset({42}), frozenset({"ConfigError"}))
        self.gang = Gang(nodes, limits, check=check, domains=domains)
        self.all_is_heard()

    # Who may do what.

    @property
    def talking(self) -> list[Link]:
        links = [one.link for one in self.gang.living if one.link] + list(self.gang.links.values())
        links += [one.link for one in self.gang.supervisors.values() if one.link]
        return [link for link in dict.fromkeys(links) if link.to_coordinator and self.gang.coordinator]

    @property
    def hearing(self) -> list[Supervisor]:
        return [one for one in self.gang.living if one.link and one.link.to_member]

    @property
    def lost(self) -> list[Link]:
        return [
            link
            for link in self.gang.links.values()
            if link.closed and not link.to_coordinator and self.gang.coordinator
        ]

    @property
    def deserted(self) -> list[Supervisor]:
        return [one for one in self.gang.living if one.link and one.link.closed and not one.link.to_member]

    @property
    def searching(self) -> list[Supervisor]:
        return [one for one in self.gang.living if not one.link and not one.ranks and self.gang.coordinator]

    @property
    def running(self) -> list[Supervisor]:
        return [one for one in self.gang.living if one.ranks]

    @property
    def stopping(self) -> list[Supervisor]:
        return [one for one in self.running if one.ranks and one.ranks.stopped and not one.ranks.stuck]

    @property
    def failing(self) -> list[Supervisor]:
        return [one for one in self.running if one.ranks and one.ranks.ends]

    @property
    def far(self) -> list[Supervisor]:
        return [one for one in self.gang.living if one.link and one.node != 0]

    @property
    def asked(self) -> list[Supervisor]:
        return [one for one in self.gang.living if not one.leaving]

    @property
    def gone(self) -> list[int]:
        over = self.gang.over
        return [node for node, one in self.gang.supervisors.items() if one.exit_code and not over]

    @property
    def alive(self) -> list[Supervisor]:
        return [one for one in self.gang.supervisors.values() if one.lives]

    # What happens by itself.

    @some("searching")
    @rule(data=st.data())
    def connects(self, data: st.DataObject) -> None:
        self.gang.connect(data.draw(st.sampled_from(self.searching)))

    @some("talking")
    @rule(data=st.data(), many=st.integers(1, 5))
    def the_coordinator_hears(self, data: st.DataObject, many: int) -> None:
        for _ in range(many):
            if self.talking:
                self.gang.to_coordinator(data.draw(st.sampled_from(self.talking)))

    @some("hearing")
    @rule(data=st.data(), many=st.integers(1, 5))
    def members_hear(self, data: st.DataObject, many: int) -> None:
        for _ in range(many):
            if self.hearing:
                self.gang.to_member(data.draw(st.sampled_from(self.hearing)))

    @rule()
    def all_is_heard(self) -> None:
        while self.searching or self.talking or self.hearing:
            for one in self.searching:
                self.gang.connect(one)
            for link in self.talking:
                if link.to_coordinator:  # A message on another link may have cut this link.
                    self.gang.to_coordinator(link)
            for one in self.hearing:
                self.gang.to_member(one)

    @rule()
    def all_is_heard_and_missed(self) -> None:
        for one in self.deserted:
            self.gang.lost_by_member(one)
        for link in self.lost:
            self.gang.lost_by_coordinator(link)
        for one in self.stopping:
            self.gang.ends(one, 137)
        self.all_is_heard()

    @some("lost")
    @rule(data=st.data())
    def the_coordinator_misses_a_member(self, data: st.DataObject) -> None:
        self.gang.lost_by_coordinator(data.draw(st.sampled_from(self.lost)))

    @some("deserted")
    @rule(data=st.data())
    def a_member_misses_the_coordinator(self, data: st.DataObject) -> None:
        self.gang.lost_by_member(data.draw(st.sampled_from(self.deserted)))

    @rule(seconds=st.sampled_from([0.5, 2, 30, 100]))
    def time_passes(self, seconds: float) -> None:
        if seconds >= KILLED_SECONDS:
            for one in self.stopping:
                self.gang.ends(one, 137)
            self.all_is_heard()
        self._wait(seconds)

    @some("alive")
    @rule(data=st.data())
    def a_supervisor_learns_where_it_is(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.alive))
        if one.domain is not None:
            one.domain = "b"

    @some("running")
    @rule()
    def a_step_is_finished(self) -> None:
        for one in self.running:
            assert one.ranks
            if not one.ranks.check:
                one.ranks.stepped = True
                one.tell(Beats(one.attempt, ({"rank": one.process, "step": 1},)))

    @some("stopping")
    @rule(data=st.data())
    def stopped_ranks_end(self, data: st.DataObject) -> None:
        self.gang.ends(data.draw(st.sampled_from(self.stopping)), 137)

    @some("running")
    @rule(data=st.data(), code=st.sampled_from([0, 0, 205]))
    def ranks_end_by_themselves(self, data: st.DataObject, code: int) -> None:
        self.gang.ends(data.draw(st.sampled_from(self.running)), code)

    @some("running")
    @rule(code=st.sampled_from([0, 205]))
    def all_ranks_end(self, code: int) -> None:
        for one in self.running:
            self.gang.ends(one, code)

    @precondition(lambda self: self.gang.takes_code)
    @rule(applies=st.sampled_from([True, True, False]))
    def new_code_is_sent(self, applies: bool) -> None:  # noqa: FBT001
        self.gang.send_code(applies=applies)

    # Faults.

    @some("running")
    @rule(data=st.data(), failure=st.sampled_from(list(FAILURES)), whole=st.booleans())
    def a_rank_fails(self, data: st.DataObject, failure: str, whole: bool) -> None:  # noqa: FBT001
        one = data.draw(st.sampled_from(self.running))
        code, cause, exception = FAILURES[failure]
        one.fail(End(one.process, code, self.gang.now, cause, exception=exception))
        if whole:
            self.gang.ends(one, 137)

    @some("stopping")
    @rule(data=st.data())
    def a_rank_is_stuck(self, data: st.DataObject) -> None:
        ranks = data.draw(st.sampled_from(self.stopping)).ranks
        assert ranks
        ranks.stuck = True

    @some("running")
    @rule()
    def all_lose_their_peers(self) -> None:
        for one in self.running:
            one.fail(End(one.process, 1, self.gang.now, "PeerLost"))

    @some("alive")
    @rule(data=st.data())
    def a_pod_dies(self, data: st.DataObject) -> None:
        self.gang.dies(data.draw(st.sampled_from(self.alive)))

    @some("asked")
    @rule(data=st.data())
    def a_pod_is_asked_to_stop(self, data: st.DataObject) -> None:
        self._ask(data.draw(st.sampled_from(self.asked)))

    @some("far")
    @rule(data=st.data())
    def a_link_breaks(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.far))
        assert one.link
        one.link.cut()

    @some("gone")
    @rule(data=st.data())
    def a_pod_is_replaced(self, data: st.DataObject) -> None:
        self._replace(data.draw(st.sampled_from(self.gone)), data)

    @some("far")
    @rule(data=st.data())
    def a_node_is_taken_for_dead(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.far))
        if self.gang.supervisors[one.node] is one and not self.gang.over:
            assert one.link
            one.link.cut()
            self._replace(one.node, data)

    @precondition(lambda self: self.gang.coordinator is not None)
    @rule()
    def a_stall_is_found(self) -> None:
        self.gang.tell_coordinator(lambda coordinator: coordinator.found_stalled(self.gang.now - 10, self.gang.now))

    # How it ends.

    def teardown(self) -> None:
        if not hasattr(self, "gang"):
            return
        quiet = 0
        while quiet < QUIET_ROUNDS:
            quiet = 0 if self._round() else quiet + 1
        state = {node: one for node, one in self.gang.supervisors.items() if one.lives}
        for one, link in self.gang.told:
            assert not one.lives or link.broken, f"{one} was sent its last words, and lives"
        if self.gang.over:
            assert not any(one.link for one in state.values()), f"the coordinator is gone, and yet: {state}"
            return
        coordinator = self.gang.coordinator
        assert coordinator is not None, state
        if coordinator.phase is Phase.GATHERING:
            done = {node for node, one in self.gang.supervisors.items() if one.exit_code == 0}
            assert coordinator.missing, f"all are there, and nothing starts: {state}"
            assert done >= set(coordinator.missing), f"they wait for {coordinator.missing}: {state}"
            assert not self.gang.dismissed & done, f"they wait for whom they let go: {state}"
            return
        assert coordinator.phase is Phase.RUNNING, f"{coordinator.phase}: {state}"
        crews = {node: one.ranks.attempt for node, one in state.items() if one.ranks}
        assert set(crews.values()) == {coordinator.attempt}, (
            f"attempt {coordinator.attempt} runs on {crews}: {coordinator.members} {state}"
        )

    def _round(self) -> bool:
        """Does everything that happens without a fault. Returns whether anything has changed."""
        before = self._traces()
        for node in self.gone:
            self._replace(node, None)
        self.all_is_heard()
        for link in self.lost:
            self.gang.lost_by_coordinator(link)
        for one in self.deserted:
            self.gang.lost_by_member(one)
        saved = self.gang.coordinator is not None and any(
            member.state is MemberState.IDLE for member in self.gang.coordinator.members.values()
        )
        for one in self.running:
            assert one.ranks
            if one.ranks.stopped and one.ranks.stuck and one.leaving:
                self.gang.dies(one)  # The kubelet does not wait forever: it kills the pod.
                break
            if one.ranks.stopped and one.ranks.stuck and one.link:
                self._wait(KILLED_SECONDS)
                break
            if one.ranks.stopped:
                self.gang.ends(one, 137)
            elif one.leaving or (saved and not one.ranks.ends):
                self.gang.ends(one, 205)
            elif one.alone or one.ranks.check:
                self.gang.ends(one, 0)
        self._wait(1)
        return self._traces() != before

    def _traces(self) -> str:
        coordinator = self.gang.coordinator
        known = (coordinator.phase, coordinator.attempt, coordinator.members) if coordinator else None
        return repr((known, self.gang.supervisors, self.gang.zombies))

    def _wait(self, seconds: float) -> None:
        gang = self.gang
        gang.now += seconds
        moment = gang.coordinator.next_moment() if gang.coordinator else None
        if moment is not None and moment <= gang.now and gang.coordinator and gang.coordinator.phase is Phase.STALLED:
            gang.tell_coordinator(lambda coordinator: coordinator.blamed(0, "it is stopped", None, gang.now))
            gang.ending()
        if gang.coordinator:
            gang.tell_coordinator(lambda coordinator: coordinator.tick(gang.now))

    def _ask(self, one: Supervisor) -> None:
        one.leaving = True
        one.tell(Leaving())
        if one.ranks is None:
            one.exit(143)
            self.gang._may_end()

    def _replace(self, node: int, data: st.DataObject | None) -> None:
        def asked(living: list[Supervisor]) -> list[Supervisor]:
            if data is None or not living:
                return living
            return data.draw(st.lists(st.sampled_from(living), unique_by=id))

        self.gang.replace(node, asked)


def test_a_pod_that_is_told_to_stop_while_a_rank_of_it_is_stuck_is_waited_for_until_it_is_killed() -> None:
    history = Histories()
    history.begin(3, 0, 20, check=False, domains=(None,))
    first, other, _ = history.gang.supervisors.values()
    assert other.link
    other.link.cut()
    history.all_is_heard_and_missed()
    history._ask(first)
    assert first.ranks
    first.ranks.stuck = True
    history.all_is_heard_and_missed()
    history.teardown()


class TestHistories(Histories.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(2), stateful_step_count=40)


@pytest.mark.full("more of the same: TestHistories tries a part")
class TestMoreHistories(Histories.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(examples(5), stateful_step_count=40)
