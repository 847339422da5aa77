"""Jobs on a cluster with an operator: events that happen to them, and their state afterwards."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.numbers import MOST_SECONDS
from ddpjob_operator.engine.incidents.price import JITTER

from tests.support.jobs import steered
from tests.support.operators import Operator
from tests.support.variables import variables_of
from tests.support.waiting import wait_for

from .server import Server
from .table import GONE, Follows, Then

# The jitter may shorten the longest backoff that can be requested. The hour is for the test itself, which takes time.
LONG = timedelta(seconds=MOST_SECONDS * (1 - JITTER)) - timedelta(hours=1)


@dataclass(frozen=True)
class Jobs:
    """The jobs of one namespace."""

    server: Server
    operator: Operator

    def until(self, what: str, lacking: Callable[[], Any]) -> None:
        """Waits until nothing is lacking. If the wait is too long, prints what is lacking and the operator's log."""

        def story() -> str:
            return f"{lacking()}\n{self.operator.program.last_words()}"

        wait_for(what, lambda: not lacking(), story=story)

    def come_to(self, follows: Mapping[str, Follows]) -> None:
        """Waits until each job, by name, has been as expected at least once.

        So states that pass quickly are noticed, too.
        """
        left = dict(follows)

        def lacking() -> dict[str, list[str]]:
            lacks = {name: self.lacks(name, to_be) for name, to_be in left.items()}
            for name in [name for name, what in lacks.items() if not what]:
                del left[name]
            return {name: what for name, what in lacks.items() if what}

        self.until("what follows", lacking)

    def unseen(self, name: str) -> bool:
        """Whether the operator has still to react to the present spec."""
        job = self.server.job(name)
        said = (job or {}).get("status", {}).get("observedGeneration")
        return job is not None and said != job["metadata"]["generation"]

    def happens(self, then: Then, name: str, how: dict[str, str]) -> None:
        """Makes something happen to a job."""
        job = self.server.job(name)
        assert job is not None
        match then:
            case Then.RANK_1_FAILS:
                self._ends(job, 1, {"exit_code": "1"} | how)
            case Then.IT_FAILS_AGAIN:
                self._fails_twice(name)
            case Then.RANK_0_FINISHES:
                self._ends(job, 0, {})
            case Then.ALL_FINISH:
                for rank in range(2):
                    self._ends(job, rank, {})
            case Then.RANK_1_IS_DELETED:
                self.server.delete_pod(self.present(job)[1]["metadata"]["name"])
            case Then.IT_IS_RESUMED:
                self.server.change({**job, "spec": job["spec"] | {"suspend": False}})

    def present(self, job: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """A job's pods of the newest incarnation, by rank."""
        pods = self.server.pods(job["metadata"]["uid"])
        newest = max((_number(pod, Label.INCARNATION) for pod in pods), default=0)
        found = {_number(pod, Label.NODE): pod for pod in pods if _number(pod, Label.INCARNATION) == newest}
        return dict(sorted(found.items()))

    def lacks(self, name: str, follows: Follows) -> list[str]:
        """Everything that is not as expected, in sentences."""
        job = self.server.job(name)
        if job is None or follows == GONE:
            return [] if job is None and follows == GONE else [f"the job is {'gone' if job is None else 'there'}"]
        facts = dict(self._facts(job, follows))
        return [f"{what} is {is_so!r}, not {to_be!r}" for what, (is_so, to_be) in facts.items() if is_so != to_be]

    def _facts(self, job: dict[str, Any], follows: Follows) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Each fact as it is, and as it is expected."""
        status, present = job.get("status", {}), self.present(job)
        pods, trainers = list(present.values()), [_trainer(pod) for pod in present.values()]
        asked = {
            "state": (lambda: status.get("state"), follows.state),
            "attempt": (lambda: status.get("attempt"), follows.attempt),
            "ready": (lambda: status.get("display", {}).get("ready"), follows.ready),
            "reason": (lambda: _reason(status), follows.reason),
            "wait": (lambda: _waits(status), follows.waits),
            "pods": (lambda: tuple(pod["status"]["phase"] for pod in pods if _stays(pod)), follows.pods),
            "wait for the master": (
                lambda: any("initContainers" in pod["spec"] for pod in pods),
                follows.master_waits,
            ),
            "network policy": (lambda: self.server.policies(job["metadata"]["uid"]) == 1, follows.policy),
            "disruption budget": (lambda: self.server.budgets(job["metadata"]["uid"]) == 1, follows.budget),
            "grace": (lambda: self._grace(job), follows.grace),
            "group": (lambda: self._of_group(status, follows.group or {}), follows.group),
        }
        yield from ((what, (fact(), to_be)) for what, (fact, to_be) in asked.items() if to_be is not None)
        yield "message", (follows.message in status.get("message", "") or status.get("message"), True)
        for name, value in follows.variables.items():
            yield name, ({trainer.get(name) for trainer in trainers}, {value})

    def _grace(self, job: dict[str, Any]) -> int | None:
        """The grace period of the job's pods that are being deleted."""
        pods = self.server.pods(job["metadata"]["uid"])
        given = {pod["metadata"].get("deletionGracePeriodSeconds") for pod in pods} - {None}
        return given.pop() if len(given) == 1 else None

    def _of_group(self, status: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """The given fields of the present attempt's PodGroup."""
        spec = self.server.group(status.get("podGroup", ""))
        return {field: spec.get(field) for field in asked}

    def _ends(self, job: dict[str, Any], rank: int, how: dict[str, str]) -> None:
        self.server.annotate(self.present(job)[rank]["metadata"]["name"], steered(runs_for="0s", **how))

    def _fails_twice(self, name: str) -> None:
        """Makes rank 1 fail twice. Before the second time, all ranks have run for longer than the shortest window."""
        for attempt in (1, 2):
            self.until("all to run", lambda at=attempt: self.lacks(name, Follows(attempt=at, ready="2/2")))
            job = self.server.job(name)
            assert job is not None
            running = next(one for one in job["status"]["conditions"] if one["type"] == "Running")
            healthy = datetime.fromisoformat(running["lastTransitionTime"]) + timedelta(seconds=2)
            self.until("a second to pass", lambda then=healthy: datetime.now(UTC) <= then)
            self._ends(job, 1, {"exit_code": "1"})


def _number(pod: dict[str, Any], label: str) -> int:
    return int(pod["metadata"]["labels"][label])


def _stays(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _trainer(pod: dict[str, Any]) -> dict[str, str]:
    """The variables of a pod's trainer."""
    container = next(one for one in pod["spec"]["containers"] if one["name"] == "trainer")
    return variables_of(container)


def _reason(status: dict[str, Any]) -> str | None:
    found = [one["reason"] for one in status.get("conditions", ()) if one["type"] == status.get("state")]
    return found[0] if found else None


def _waits(status: dict[str, Any]) -> bool:
    until = status.get("backoffUntil")
    return until is not None and datetime.fromisoformat(until) > datetime.now(UTC) + LONG
