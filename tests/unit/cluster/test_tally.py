"""What Prometheus reads about jobs, namespace by namespace, as its own parser understands it."""

import random
import time
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from ddpjob_operator.api import Cause, State
from ddpjob_operator.cluster.kube.objects import JobObject, read
from ddpjob_operator.cluster.serve.job_metrics import (
    BUCKETS,
    BUDGET_USED,
    COUNTERS,
    DIVERGED,
    FINISHED,
    GAUGES,
    OF_CAUSES,
    OTHER,
    STALLED,
    WAIT_AGE,
    Family,
    JobMetrics,
)
from ddpjob_operator.cluster.serve.metrics import REGISTRY
from ddpjob_operator.cluster.store import StoredJob
from ddpjob_operator.cluster.tally import KEPT_SECONDS, Tally
from ddpjob_operator.engine import COUNTED_CAUSES, FREE_CAUSES, Counts, Standing, StartPart, TimeKind
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMESPACES = 200
MOST_SERIES = 13_500
RESTARTED = [*COUNTED_CAUSES, Cause.DIVERGED]
"""Causes of restarts that count which have a series of their own."""
TROUBLE = {family.name for family in (WAIT_AGE, BUDGET_USED, DIVERGED, STALLED)}

Told = dict[str, float]


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


NUMBERS = count()


def a_job(namespace: str = "team", state: str = "Running", **status: object) -> StoredJob:
    name = f"job-{next(NUMBERS)}"
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    return StoredJob(read({"metadata": metadata, "spec": {}, "status": {"state": state, **status}}, JobObject))


def told(metrics: JobMetrics) -> Told:
    families = text_string_to_metric_families(generate_latest(metrics).decode())
    return {_series(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={value}' for label, value in sorted(labels.items()))}}}"


def of(namespace: str, said: Told) -> Told:
    return {name: value for name, value in said.items() if f"namespace={namespace}" in name}


def a_tally(clock: Clock | None = None) -> Tally:
    return Tally(lambda: NOW, clock or Clock())


def everything(tally: Tally, namespace: str) -> None:
    """All that can happen in a namespace, and causes that this version does not know."""
    for cause in (*Cause, "Unheard", "Of"):
        tally.add(namespace, Counts(restart=cause))
        tally.add(namespace, Counts(disruption=cause, steps=9, repeated_steps=2))
    for state in (State.SUCCEEDED, State.FAILED):
        tally.add(namespace, Counts(finished=state, starts=tuple((part, 3.0) for part in StartPart)))
    for kind in TimeKind:
        tally.note((namespace, f"job-{kind}"), Standing(kind, 8, NOW, NOW, NOW, 0.5, diverged=True, stalled=True))


def test_two_hundred_namespaces_in_which_everything_has_happened_have_at_most_13500_series() -> None:
    tally = a_tally()
    names = [f"team-{number}" for number in range(NAMESPACES)]
    # A state of a newer version lasts only until this version has written the job's status.
    jobs = [a_job(name, state) for name in names for state in State] + [a_job("team-7", "Unheard")]
    for name in names:
        everything(tally, name)
    said = told(tally.metrics(jobs, leads=True))
    own = [line for line in generate_latest(REGISTRY).decode().splitlines() if not line.startswith("#")]
    assert len(said) + len(own) <= MOST_SERIES
    assert len(of("team-7", said)) >= 60, "the test did let everything happen"
    assert len(told(tally.metrics([a_job(name) for name in names], leads=True))) == pytest.approx(len(said), abs=200)


def test_no_label_has_a_jobs_name() -> None:
    tally = a_tally()
    everything(tally, "team")
    assert "job-" not in "".join(told(tally.metrics([a_job()], leads=True)))


def test_the_series_of_a_namespace_begin_at_0_with_its_first_job() -> None:
    tally = a_tally()
    assert of("team", told(tally.metrics([], leads=True))) == {}
    said = of("team", told(tally.metrics([a_job()], leads=True)))
    assert said.pop("ddpjob_jobs{namespace=team,state=Running}") == 1
    assert {*said.values()} == {0}
    begun = {*(f"ddpjob_jobs{{namespace=team,state={state}}}" for state in (*State,) if state != State.RUNNING)}
    begun |= {f"ddpjob_jobs_finished_total{{namespace=team,state={state}}}" for state in ("Succeeded", "Failed")}
    begun |= {
        f"ddpjob_{use}_seconds_total{{kind={kind},namespace=team}}" for use in ("time", "gpu") for kind in TimeKind
    }
    begun |= {f"ddpjob_{steps}_total{{namespace=team}}" for steps in ("steps", "repeated_steps")}
    begun |= {f"ddpjob_{what}_age_seconds{{namespace=team}}" for what in ("step", "checkpoint", "pending")}
    begun |= {"ddpjob_restart_budget_used_ratio{namespace=team}"}
    begun |= {f"ddpjob_{what}_jobs{{namespace=team}}" for what in ("diverged", "stalled")}
    starts = {f"ddpjob_namespace_start_seconds_{of}" for of in ("sum", "count")}
    begun |= {f"{name}{{namespace=team,part={part}}}" for name in starts for part in StartPart}
    assert {*said} == begun


@pytest.mark.parametrize("counts", [Counts(restart=Cause.STALLED), Counts(disruption=Cause.NODE_LOST)])
def test_the_series_of_causes_begin_with_the_first_restart_of_any_cause_there(counts: Counts) -> None:
    tally = a_tally()
    jobs = [a_job(), a_job("other")]
    before = told(tally.metrics(jobs, leads=True))
    assert not any("cause=" in name for name in before)
    tally.add("team", counts)
    causes = {name: value for name, value in told(tally.metrics(jobs, leads=True)).items() if "cause=" in name}
    assert {*causes} == {
        *(f"ddpjob_restarts_total{{cause={cause},namespace=team}}" for cause in (*RESTARTED, OTHER)),
        *(f"ddpjob_disruptions_total{{cause={cause},namespace=team}}" for cause in (*FREE_CAUSES, OTHER)),
    }
    assert sum(causes.values()) == 1
    tally.add("team", counts)
    assert sum(value for name, value in told(tally.metrics(jobs, leads=True)).items() if "cause=" in name) == 2


@pytest.mark.parametrize("status", [{"restarts": 2}, {"disruptions": 1}])
def test_a_replica_that_has_counted_nothing_shows_the_causes_where_jobs_have_restarted(
    status: dict[str, int],
) -> None:
    said = told(a_tally().metrics([a_job(**status), a_job("other", restarts=0)], leads=False))
    assert said["ddpjob_restarts_total{cause=Stalled,namespace=team}"] == 0
    assert not any("cause=" in name for name in of("other", said))


def test_a_standby_has_the_leaders_series_at_0_but_no_gauges() -> None:
    leader, standby, jobs = a_tally(), a_tally(), [a_job(restarts=1)]
    everything(leader, "team")
    led, waits = told(leader.metrics(jobs, leads=True)), told(standby.metrics(jobs, leads=False))
    gauges = {name for name in led if name.partition("{")[0] in {family.name for family in GAUGES}}
    assert {*led} - gauges == {*waits}
    assert len(gauges) == len(State) + len(GAUGES) - 1
    assert {*waits.values()} == {0}


def test_replicas_that_lead_one_after_the_other_count_everything_once() -> None:
    replicas = [a_tally(), a_tally(), a_tally()]
    jobs, happened = [a_job(restarts=1)], list[str]()
    for _ in range(random.randrange(2, 6)):
        leader = random.choice(replicas)
        for _ in range(random.randrange(5)):
            happened.append(random.choice(RESTARTED))
            leader.add("team", Counts(restart=happened[-1], steps=3, repeated_steps=1))
    said = [told(replica.metrics(jobs, leads=False)) for replica in replicas]
    for cause in RESTARTED:
        name = f"ddpjob_restarts_total{{cause={cause},namespace=team}}"
        assert sum(one[name] for one in said) == happened.count(cause)
    assert sum(one["ddpjob_steps_total{namespace=team}"] for one in said) == 3 * len(happened)
    assert sum(one["ddpjob_repeated_steps_total{namespace=team}"] for one in said) == len(happened)


def test_jobs_that_have_ended_are_counted_by_how_they_ended() -> None:
    tally = a_tally()
    for state in (State.SUCCEEDED, State.FAILED, State.SUCCEEDED):
        tally.add("team", Counts(finished=state))
    said = told(tally.metrics([a_job()], leads=True))
    ended = {state: said[f"ddpjob_jobs_finished_total{{namespace=team,state={state}}}"] for state in FINISHED.values}
    assert ended == {State.SUCCEEDED: 2, State.FAILED: 1}


def test_a_cause_of_a_newer_version_and_one_that_needs_a_rule_are_other() -> None:
    tally = a_tally()
    tally.add("team", Counts(restart="Unheard"))
    for cause in (Cause.NODE_LOST, Cause.CONFIG_ERROR):
        tally.add("team", Counts(restart=cause))
    tally.add("team", Counts(disruption=Cause.APPLICATION))
    said = told(tally.metrics([a_job(state="Unheard")], leads=True))
    assert said["ddpjob_restarts_total{cause=Other,namespace=team}"] == 3
    assert said["ddpjob_disruptions_total{cause=Other,namespace=team}"] == 1
    assert said["ddpjob_jobs{namespace=team,state=Other}"] == 1


def test_time_is_counted_by_kind_up_to_the_moment_and_weighted_by_gpus() -> None:
    clock = Clock()
    tally, jobs, key = a_tally(clock), [a_job()], ("team", "digits")

    def seconds(of: str) -> Told:
        said = told(tally.metrics(jobs, leads=True))
        return {
            name.partition("kind=")[2].partition(",")[0]: value
            for name, value in said.items()
            if name.startswith(f"ddpjob_{of}_seconds_total") and value
        }

    tally.note(key, Standing(TimeKind.PROGRAM_STARTUP, 4))
    clock.seconds += 10
    assert seconds("time") == {"program_startup": 10}
    clock.seconds += 5
    tally.note(key, Standing(TimeKind.GOODPUT, 8))
    tally.note(("team", "another"), Standing(TimeKind.GOODPUT, 0))
    clock.seconds += 100
    assert seconds("time") == {"program_startup": 15, "goodput": 200}
    assert seconds("gpu") == {"program_startup": 60, "goodput": 800}
    tally.note(key, Standing())
    clock.seconds += 1
    tally.forget(("team", "another"))
    clock.seconds += 1000
    assert seconds("time") == {"program_startup": 15, "goodput": 201}


def test_the_ages_are_those_of_the_job_that_has_waited_longest() -> None:
    tally, ago = a_tally(), [NOW - timedelta(seconds=seconds) for seconds in (30, 70, 20)]
    tally.note(("team", "a"), Standing(TimeKind.GOODPUT, 0, ago[0], ago[1]))
    tally.note(("team", "b"), Standing(TimeKind.GOODPUT, 0, ago[2]))
    tally.note(("other", "c"), Standing(TimeKind.PROGRAM_STARTUP))
    said = told(tally.metrics([a_job(), a_job("other")], leads=True))
    assert said["ddpjob_step_age_seconds{namespace=team}"] == 30
    assert said["ddpjob_checkpoint_age_seconds{namespace=team}"] == 70
    assert (
        said["ddpjob_step_age_seconds{namespace=other}"]
        == said["ddpjob_checkpoint_age_seconds{namespace=other}"]
        == 0
    )


def test_a_namespaces_longest_wait_largest_share_and_number_of_jobs_that_diverged_or_stalled() -> None:
    tally, jobs = a_tally(), [a_job(), a_job("other")]
    ago = [NOW - timedelta(seconds=seconds) for seconds in (901, 30, 3599, 3600)]
    tally.note(("team", "a"), Standing(waits_since=ago[0], budget_used=0.5, diverged=True))
    tally.note(("team", "b"), Standing(TimeKind.GOODPUT, waits_since=ago[1], budget_used=1 / 3))
    tally.note(("team", "c"), Standing(TimeKind.GOODPUT, budget_used=1.0, budget_restored=NOW))
    tally.note(("team", "d"), Standing(diverged=True, ended=ago[2]))
    tally.note(("team", "e"), Standing(diverged=True, ended=ago[3]))
    tally.note(("team", "g"), Standing(stalled=True))
    tally.note(("team", "h"), Standing(stalled=True, ended=ago[2]))
    tally.note(("team", "i"), Standing(stalled=True, ended=ago[3]))
    tally.note(("elsewhere", "f"), Standing(diverged=True))
    said = told(tally.metrics(jobs, leads=True))
    found = {name: value for name, value in said.items() if name.partition("{")[0] in TROUBLE and value}
    assert found == {
        "ddpjob_pending_age_seconds{namespace=team}": 901,
        "ddpjob_restart_budget_used_ratio{namespace=team}": 0.5,
        "ddpjob_diverged_jobs{namespace=team}": 2,
        "ddpjob_stalled_jobs{namespace=team}": 2,
    }
    for name in "abcdeghi":
        tally.note(("team", name), Standing())
    said = told(tally.metrics(jobs, leads=True))
    assert not [name for name, value in said.items() if name.partition("{")[0] in TROUBLE and value]


def test_starts_are_a_histogram_of_all_namespaces_and_sums_of_each() -> None:
    tally = a_tally()
    for seconds in (1.0, 1.5, 1e6):
        tally.add("team", Counts(starts=((StartPart.PULLED, seconds),)))
    tally.add("other", Counts(starts=((StartPart.PULLED, 4.0), (StartPart.QUEUED, 0.0))))
    said = told(tally.metrics([], leads=True))
    counted = {
        limit: said[f"ddpjob_start_seconds_bucket{{le={limit},part=pulled}}"] for limit in ("1.0", "2.0", "5.0")
    }
    assert counted == {"1.0": 1, "2.0": 2, "5.0": 3}
    assert said[f"ddpjob_start_seconds_bucket{{le={BUCKETS[-1]},part=pulled}}"] == 3
    assert (
        said["ddpjob_start_seconds_bucket{le=+Inf,part=pulled}"]
        == said["ddpjob_start_seconds_count{part=pulled}"]
        == 4
    )
    assert said["ddpjob_start_seconds_sum{part=pulled}"] == 1e6 + 6.5
    assert said["ddpjob_namespace_start_seconds_sum{namespace=other,part=pulled}"] == 4
    assert said["ddpjob_namespace_start_seconds_count{namespace=team,part=pulled}"] == 3
    assert said["ddpjob_namespace_start_seconds_count{namespace=team,part=queued}"] == 0


def test_the_series_of_a_deleted_namespace_go_and_those_of_others_stay() -> None:
    clock = Clock()
    tally, stays = a_tally(clock), [a_job("other")]
    everything(tally, "team")
    everything(tally, "other")
    for kind in TimeKind:
        tally.forget(("team", f"job-{kind}"))
    tally.look([a_job(), *stays])
    clock.seconds += KEPT_SECONDS
    assert of("team", told(tally.metrics(stays, leads=True))), "Prometheus has yet to read the last counts"
    clock.seconds += 1
    said = told(tally.metrics(stays, leads=True))
    assert of("team", said) == {}
    assert of("other", said)["ddpjob_steps_total{namespace=other}"] > 0
    again = of("team", told(tally.metrics([a_job(), *stays], leads=True)))
    assert sum(again.values()) == 1, "a namespace of the same name begins at 0"


def test_thousands_of_namespaces_end_at_once_without_a_pause() -> None:
    clock = Clock()
    tally = a_tally(clock)
    for number in range(1500):
        tally.add(f"team-{number}", Counts(restart=Cause.APPLICATION))
    clock.seconds += KEPT_SECONDS + 1
    began = time.process_time()
    tally.look([])
    assert time.process_time() - began < 0.5, "a pass for each namespace takes seconds"
    assert of("team-7", told(tally.metrics([], leads=True))) == {}


def test_a_namespace_that_is_no_longer_served_has_no_series_even_if_jobs_run_there() -> None:
    clock = Clock()
    tally = a_tally(clock)
    everything(tally, "team")
    tally.end("team")
    clock.seconds += 10
    for kind in TimeKind:
        tally.forget(("team", f"job-{kind}"))
    assert of("team", told(tally.metrics([], leads=True))) == {}


def test_what_is_read_does_not_change_while_it_is_written_down() -> None:
    tally = a_tally()
    everything(tally, "team")
    metrics = tally.metrics([a_job()], leads=True)
    before = generate_latest(metrics)
    everything(tally, "team")
    everything(tally, "other")
    assert generate_latest(metrics) == before


@pytest.mark.parametrize("family", [*COUNTERS, *OF_CAUSES], ids=lambda family: family.name)
def test_all_values_of_a_label_are_one_word(family: Family) -> None:
    assert all(value.isidentifier() for value in family.values if value)
    assert len({*family.values}) == len(family.values)
