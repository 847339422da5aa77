"""Where `ddpjob top` gets its jobs from, and what it prints with --once."""

import argparse
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli import top as module
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.top import actions, app, feeds
from ddpjob_operator.cli.top.actions import ACTS, command_of
from ddpjob_operator.cli.top.feeds import JobsHere, JobsThere, KeptJobs
from ddpjob_operator.cli.top.printed_points import MOST_LINES
from ddpjob_operator.client import ClusterError, JobPod, Jobs, UnreachableError
from ddpjob_operator.client import watch as watching
from ddpjob_operator.history import KeptJob, PlaceError
from ddpjob_operator.local import RunDirectory, Runs
from ddpjob_operator.view_model import JobKey, Origin

from tests.support.waiting import wait_for
from tests.unit.client.api import A_POD, a_cluster, a_list, jobs_with, refused
from tests.unit.view_model.jobs import NOW, job_with, moment

METADATA = {"namespace": "team", "resourceVersion": "1", "creationTimestamp": "2025-12-31T23:00:00Z"}


def a_document(name: str = "digits", version: str = "1", **status: Any) -> dict[str, Any]:
    document = job_with({"state": "Running", **status}).to_document()
    metadata = METADATA | {"name": name, "uid": f"uid-of-{name}", "resourceVersion": version}
    return document | {"metadata": metadata, "spec": {"template": document["spec"]["template"]}}


def there(*answers: Any, everywhere: bool = False) -> JobsThere:
    cluster = a_cluster(*answers)
    object.__setattr__(cluster, "apart", lambda: cluster)
    return JobsThere(Jobs(cluster), everywhere=everywhere)


def a_run(runs: Path, name: str, **status: Any) -> RunDirectory:
    run = RunDirectory(runs / name)
    run.create()
    run.save(job_with({"state": "Running", **status}))
    return run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return tmp_path / "runs"


def test_runs_on_this_machine_are_read_again_only_if_they_have_changed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, feed, loads = a_run(runs, "one"), JobsHere(Runs(runs, named=True)), list[str]()
    load = RunDirectory.load
    monkeypatch.setattr(RunDirectory, "load", lambda self: loads.append(self.root.name) or load(self))
    assert [row.state for row in feed.rows(NOW) + feed.rows(NOW)] == ["Running", "Running"]
    run.save(job_with({"state": "Failed"}))
    assert ([row.state for row in feed.rows(NOW)], loads) == (["Failed"], ["one", "one"])
    run.job_file.unlink()
    assert feed.rows(NOW) == []


def test_a_run_that_cannot_be_read_harms_only_itself(runs: Path) -> None:
    a_run(runs, "good")
    a_run(runs, "bad").job_file.write_text("{")
    rows = {row.name: row for row in JobsHere(Runs(runs, named=True)).rows(NOW)}
    assert (rows["digits"].state, rows["bad"].state) == ("Running", "Unknown")
    assert "is damaged" in rows["bad"].message


def test_a_run_whose_file_may_not_be_looked_at_says_so(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, feed = a_run(runs, "one"), JobsHere(Runs(runs, named=True))
    (known,) = feed.rows(NOW)
    feed = JobsHere(Runs(runs, named=True))
    monkeypatch.setattr(RunDirectory, "load", lambda _: None)
    assert (feed.rows(NOW), feed.detail(known.key, NOW), feed.job(known.key)) == ([], None, None)
    denied = PermissionError(13, "Permission denied", str(run.job_file))
    stat = Path.stat

    def looked(path: Path, **given: Any) -> Any:
        if path.name == "job.json":
            raise denied
        return stat(path, **given)

    monkeypatch.setattr(feeds, "all_runs", lambda _: [run])
    monkeypatch.setattr(Path, "stat", looked)
    (row,) = feed.rows(NOW)
    monkeypatch.undo()
    assert (row.name, row.state, row.key.uid) == ("one", "Unknown", str(run.root))
    assert "Permission denied" in row.message


def test_a_run_in_full_has_the_curve_of_its_records(runs: Path) -> None:
    run = a_run(runs, "one")
    lines = (
        f'{{"time": "{moment(-9)}", "event": "started", "attempt": 1, "step": 0}}',
        f'{{"time": "{moment(-8)}", "event": "progress", "attempt": 1, "step": 1, "loss": 0.5}}',
    )
    (run.metrics / "progress.jsonl").write_text("\n".join(lines) + "\n")
    feed = JobsHere(Runs(runs, named=True))
    found = feed.detail(feed.rows(NOW)[0].key, NOW)
    assert found is not None
    assert (found.lines["Directory"], found.curves["loss"].points) == (str(run.root), [(1, 0.5)])


def test_of_a_loss_that_only_the_log_of_a_run_shows_there_is_a_curve_that_grows(runs: Path) -> None:
    run = a_run(runs, "one")
    log = run.logs / "attempt-1" / "node-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("iter 10: loss 4.5\niter 20: loss 3.5\n")
    feed = JobsHere(Runs(runs, named=True))
    key = feed.rows(NOW)[0].key

    def loss() -> list[tuple[float, float]]:
        found = feed.detail(key, NOW)
        assert found is not None
        return found.curves["loss"].points

    assert loss() == [(10, 4.5), (20, 3.5)]
    with log.open("a") as written:
        written.write("iter 30: loss 2.5\n")
    assert loss() == [(10, 4.5), (20, 3.5), (30, 2.5)]


def test_of_a_loss_that_only_the_log_of_a_pod_shows_there_is_a_curve() -> None:
    lines = ["iter 10: loss 4.5", "attempt 2 begins", "iter 5: loss 3.5"]

    def watch_pods(document: dict[str, Any]) -> Iterator[list[JobPod]]:  # noqa: ARG001
        yield [A_POD]

    def log(pod: JobPod, after: str, **limits: Any) -> Iterator[tuple[str, str]]:
        assert (pod, limits["tail"]) == (A_POD, MOST_LINES)
        return iter(() if after else [(str(at), text) for at, text in enumerate(lines, 1)])

    def listed(*, everywhere: bool) -> list[dict[str, Any]]:  # noqa: ARG001
        return [a_document(nodes=1)]

    jobs = jobs_with(all=listed, watch_pods=watch_pods, log=log, pod=lambda pod: pod)
    jobs.of_namespace = lambda _: jobs
    feed = JobsThere(jobs, everywhere=False)
    feed.fetch()
    key = feed.rows(NOW)[0].key

    def loss() -> list[tuple[float, float]]:
        found = feed.detail(key, NOW)
        assert found is not None
        return found.curves["loss"].points if found.curves else []

    try:
        wait_for("the lines", lambda: loss() == [(5, 3.5)])
    finally:
        feed.stop()


def test_jobs_on_a_cluster_are_known_by_a_watch() -> None:
    changed = list[str]()
    feed = there(a_list(a_document()), [], ClusterError("end"))
    feed.follow(lambda: changed.append("changed"))
    wait_for("the watch", lambda: feed.problem.startswith("end. What is shown is of "))
    feed.stop()
    (row,) = feed.rows(NOW)
    assert (row.key, row.state) == (JobKey(Origin.CLUSTER, "team", "digits", "uid-of-digits"), "Running")
    assert len(changed) >= 2


def test_until_a_cluster_has_answered_it_is_said_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    feed = there()
    monkeypatch.setattr(Jobs, "watch_all", lambda *_, **__: (answers.wait(60) and [] for _ in range(1)))
    feed.follow(lambda: None)
    assert (feed.problem, feed.rows(NOW)) == ("The cluster has not answered yet", [])
    answers.set()
    wait_for("the answer", lambda: not feed.problem)
    feed.stop()


def test_a_cluster_that_goes_away_is_said_to_be_away_and_its_jobs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    away = UnreachableError("cannot reach the cluster")
    monkeypatch.setattr(feeds, "OUTAGE_SECONDS", 0.0)
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.01)
    feed = there(a_list(a_document()), *[away] * 9)
    feed.follow(lambda: None)
    wait_for("the outage", lambda: feed.problem.startswith("cannot reach the cluster. What is shown is of "))
    feed.stop()
    assert [row.name for row in feed.rows(NOW)] == ["digits"]


def test_while_a_cluster_stays_away_it_is_said_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "RETRY_SECONDS", 0.01)
    problems, ended = list[str](), threading.Event()
    feed = there(a_list(a_document()), [], *[ClusterError("expired")] * 3, a_list(), [], ClusterError("ended"))

    def changed() -> None:
        problems.append(feed.problem.split(". ")[0] if ended.is_set() else feed.problem)
        if feed.problem.startswith("ended"):
            feed.stop()
            ended.set()

    feed.follow(changed)
    assert ended.wait(60)
    shown = [problem for problem in problems if problem.startswith("expired")]
    assert (len(shown), len({*shown}), "" in problems[-3:]) == (3, 1, True)
    never = there(ClusterError("refused"))
    never.follow(lambda: None)
    wait_for("the refusal", lambda: never.problem == "refused")
    never.stop()


def test_a_job_of_another_version_harms_only_itself() -> None:
    newer = a_document("newer") | {"spec": {"template": {}, "warp": 9}}
    feed = there(a_list(a_document(), newer))
    feed.fetch()
    rows = {row.name: row for row in feed.rows(NOW)}
    assert (rows["digits"].state, rows["newer"].state) == ("Running", "Unknown")
    assert "does not know: spec.warp" in rows["newer"].message


def test_of_a_job_whose_pods_may_not_be_seen_the_rest_is_shown() -> None:
    feed = there(a_list(a_document()), refused(403))
    feed.fetch()
    found = feed.detail(feed.rows(NOW)[0].key, NOW)
    assert found is not None
    assert (found.lines["State"], found.lines["Not shown"][:28]) == ("Running", "what single ranks do: the cl")
    assert feed.detail(JobKey(Origin.CLUSTER, "team", "gone", "gone"), NOW) is None


def test_the_pods_of_the_jobs_that_are_open_are_watched_until_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, ended = list[str](), threading.Event()

    def watch_pods(document: dict[str, Any]) -> Iterator[list[JobPod]]:
        opened.append(document["metadata"]["name"])
        yield []
        ended.wait(60)

    jobs = jobs_with(all=lambda everywhere: [a_document("one"), a_document("two")], watch_pods=watch_pods)  # noqa: ARG005
    jobs.of_namespace = lambda _: jobs
    feed = JobsThere(jobs, everywhere=False)
    feed.fetch()
    one, two = (row.key for row in feed.rows(NOW))
    try:
        for key in (one, two, one, two):
            found = feed.detail(key, NOW)
            assert found is not None
            assert "Not shown" not in found.lines
        assert sorted(opened) == ["one", "two"]
        monkeypatch.setattr(feeds, "UNSEEN_SECONDS", -1.0)
        feed.detail(two, NOW)
        assert [*feed._open] == [two.uid]
        feed.detail(one, NOW)
    finally:
        feed.stop()
        ended.set()
    assert opened == ["one", "two", "one"]


def test_who_may_not_forward_ports_watches_pods_all_the_same() -> None:
    opened = list[str]()

    def watch_pods(document: dict[str, Any]) -> Iterator[list[JobPod]]:
        opened.append(document["metadata"]["name"])
        yield [A_POD]

    def status_page(*_: Any) -> None:
        raise ClusterError("no port")

    supervised = a_document(nodes=1, bookkeeping={"supervised": True})
    jobs = jobs_with(all=lambda everywhere: [supervised], watch_pods=watch_pods, status_page=status_page)  # noqa: ARG005
    jobs.of_namespace = lambda _: jobs
    feed = JobsThere(jobs, everywhere=False)
    feed.fetch()
    for _ in range(3):
        found = feed.detail(feed.rows(NOW)[0].key, NOW)
        assert found is not None
        assert found.lines["Not shown"] == "what single ranks do: no port"
    assert opened == ["digits"]


def test_only_jobs_that_have_changed_are_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[str]()
    parse_job = feeds.as_job
    monkeypatch.setattr(feeds, "as_job", lambda one: parsed.append(one["metadata"]["name"]) or parse_job(one))
    one, two = a_document("one"), a_document("two")
    feed = there(a_list(one, two), a_list(one, a_document("two", version="2", state="Failed")), a_list(one))
    for states in (["Running", "Running"], ["Running", "Failed"], ["Running"]):
        feed.fetch()
        assert [row.state for row in feed.rows(NOW)] == states
    assert parsed == ["one", "two", "two"]


def test_a_cluster_that_refused_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "RETRY_SECONDS", 0.01)
    feed, told = there(refused(403), a_list(a_document()), [], ClusterError("end")), list[str]()

    def changed() -> None:
        told.append(feed.problem)
        if feed.problem.startswith("end"):
            feed.stop()

    feed.follow(changed)
    wait_for("the end", lambda: len(told) == 3)
    assert told[:2] == ["the cluster of context here refuses: no", ""]
    assert re.fullmatch(r"end\. What is shown is of \d\d:\d\d:\d\d UTC", told[2])


class AHistory:
    """A place in which there is a job, unless it is away."""

    away = ""

    def kept_jobs(self, _: Any, namespaces: list[str], unreadable: dict[str, str]) -> Iterator[KeptJob]:
        if self.away:
            raise PlaceError(self.away)
        unreadable.update({name: f"{name}: no\nright" for name in namespaces if name.startswith("other")})
        return iter([KeptJob("team", "digits", "u", began=60.0, result="Failed")])


def test_a_history_is_read_again_and_again_and_its_jobs_stay_while_it_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history, told = AHistory(), list[str]()
    monkeypatch.setattr(feeds, "LIST_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(feeds, "kept_jobs", history.kept_jobs)
    monkeypatch.setattr(feeds, "namespaces_of", lambda _: ["team"])
    reads, feed = threading.Event(), KeptJobs(SimpleNamespace(), None)  # type: ignore[arg-type]
    monkeypatch.setattr(feed, "fetch", lambda: reads.wait(60) and KeptJobs.fetch(feed))
    feed.follow(lambda: told.append(feed.problem))
    assert (feed.problem, feed.rows(NOW)) == ("The history is being read", [])
    reads.set()
    for away in ("", "the place\nis away", ""):
        history.away = away
        wait_for("what is told", lambda: feed.problem == away.replace("\n", r"\n"))  # noqa: B023  It is called here.
        assert [(row.name, row.state) for row in feed.rows(NOW)] == [("digits", "Failed")]
    feed.stop()
    assert feed.detail(JobKey(Origin.HISTORY, "team", "another", "u"), NOW) is None


@pytest.mark.parametrize(
    ("namespace", "problem"),
    [(None, r"other-1: no\nright; other-2: no\nright"), ("other-2", r"other-2: no\nright"), ("team", "")],
)
def test_of_a_history_what_may_not_be_read_is_said(
    namespace: str | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "kept_jobs", AHistory().kept_jobs)
    monkeypatch.setattr(feeds, "namespaces_of", lambda _: ["team", "other-1", "other-2"])
    feed = KeptJobs(SimpleNamespace(), namespace)  # type: ignore[arg-type]
    feed.fetch()
    assert (feed.problem, len(feed.rows(NOW))) == (problem, 1)


def test_the_job_and_its_events_are_those_of_its_uid() -> None:
    event = {"reason": "Created", "metadata": {"creationTimestamp": moment(-9)}}
    feed = there(a_list(a_document("one"), a_document("two")), a_list(event))
    feed.fetch()
    one, two = (row.key for row in feed.rows(NOW))
    found = feed.job(two)
    assert found is not None
    assert (found.metadata.name, feed.events(one)) == ("two", [event])
    gone = JobKey(Origin.CLUSTER, "team", "two", "another-uid")
    assert (feed.job(gone), feed.events(gone)) == (None, [])


def test_once_prints_a_line_for_each_job_and_says_what_is_missing(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(runs, "one", message="x", progress={"loss": 0.25})
    assert call(parse(["top", "--once", "--run-dir", str(runs)])) == 0
    first, head, line = capsys.readouterr().out.splitlines()
    assert (first, head.split()[:4], line.split()[:4]) == (
        "1 job: 1 Running",
        ["WHERE", "NAME", "STATE", "READY"],
        ["here", "digits", "Running", "0.25"],
    )
    cluster = a_cluster(refused(403))
    object.__setattr__(cluster, "apart", lambda: cluster)
    monkeypatch.setattr(module, "connect", lambda *_: cluster)
    assert call(parse(["top", "--once", "-n", "team"])) == 1
    assert "Jobs are missing" in capsys.readouterr().out


def test_a_broken_kubeconfig_hides_no_runs_unless_a_flag_asks_for_the_cluster(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(runs, "one")
    broken = runs / "kubeconfig"
    broken.write_text("no: [\x1b")
    monkeypatch.setenv("KUBECONFIG", str(broken))
    monkeypatch.setenv("DDPJOB_RUN_DIR", str(runs))
    assert call(parse(["top", "--once"])) == 1
    why, first, _, line = capsys.readouterr().out.splitlines()
    assert why.startswith(f"Jobs are missing: cannot use the kubeconfig {broken}: ")
    assert (first, line.split()[:2]) == ("1 job: 1 Running", ["here", "digits"])
    here, there = module._live_feeds(parse(["top"]))
    assert (here.problem, there.problem, there.rows(NOW)) == ("", why.removeprefix("Jobs are missing: "), [])
    for flag in (["--cluster"], ["--context", "x"]):
        assert call(parse(["top", "--once", *flag])) == 2
        assert capsys.readouterr().err.startswith(f"error: cannot use the kubeconfig {broken}: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["top"], "ddpjob top needs a terminal; --once prints a line for each job"),
        (["top", "--run-dir", "/nowhere", "--once"], "--run-dir /nowhere: there is no such directory"),
    ],
)
def test_a_mistake_gets_one_sentence(
    runs: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not runs.exists()
    assert call(parse(words)) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [
        ("textual", BadInputError, r"ddpjob top needs the extra `ui`: install ddpjob\[ui\]; --once works without it"),
        ("rich.text", ModuleNotFoundError, "rich"),
    ],
)
def test_a_library_that_is_missing_is_named(
    missing: str, error: type[Exception], words: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Screen", lambda: SimpleNamespace(is_terminal=True))
    monkeypatch.delitem(sys.modules, "ddpjob_operator.cli.top.app", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)  # type: ignore[arg-type]
    assert not runs.exists()
    with pytest.raises(error, match=words):
        module.top(parse(["top"]))


def test_the_screen_shows_all_feeds(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[Any]()
    monkeypatch.setattr(module, "Screen", lambda: SimpleNamespace(is_terminal=True))
    monkeypatch.setattr(app, "TopApp", lambda *given: SimpleNamespace(run=lambda: shown.append(given)))
    arguments = parse(["top", "--run-dir", str(runs.parent)])
    assert module.top(arguments) == 0
    (([feed], given),) = shown
    assert (type(feed), given) == (JobsHere, arguments)


def test_ctrl_c_ends_the_command_that_has_the_terminal_and_not_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts = "import os, signal; os.kill(os.getppid(), signal.SIGINT); signal.raise_signal(signal.SIGINT)"
    monkeypatch.setattr(actions, "OURSELVES", (sys.executable, "-c", interrupts))
    monkeypatch.setattr("builtins.input", lambda _: "")
    before = signal.getsignal(signal.SIGINT)
    actions.watched(["logs"])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_module_beside_the_users_scripts_is_not_taken_for_one_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    assert actions.carried_out(["--version"])[0]


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("print('done')", (True, "done")),
        ("import sys; print('begun', flush=True); sys.exit('no')", (False, "begun\nno")),
        ("print('x' * 500)", (True, "x" * 400)),
        ("import os; os.write(1, b'\\xff')", (True, "\ufffd")),
        ("input()", (False, "EOFError")),
    ],
)
def test_what_a_command_says_is_shown(
    program: str, answer: tuple[bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "OURSELVES", (sys.executable, "-S", "-c", program))
    succeeded, said = actions.carried_out([])
    assert (succeeded, answer[1] in said) == (answer[0], True)
    assert len(said) <= 400


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "OURSELVES", (sys.executable, "-S", "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(actions, "ANSWER_SECONDS", 0.6)
    assert actions.carried_out([]) == (False, "no answer for 1 s")


GIVEN = argparse.Namespace(kubeconfig=Path("k"), context="c")


@pytest.mark.parametrize(
    ("label", "key", "words"),
    [
        ("Cancel", JobKey(Origin.CLUSTER, "team", "a", "u"), "cancel a -n team --kubeconfig k --context c"),
        ("Shell", JobKey(Origin.CLUSTER, "team", "a", "u"), "debug a --rank 3 -n team --kubeconfig k --context c"),
        ("Shell", JobKey(Origin.HERE, "", "a", "/r/a"), ""),
        ("Cancel", JobKey(Origin.HERE, "", "a", "/r/a"), ""),
        ("Logs", JobKey(Origin.HERE, "", "a", "/r/a"), "logs a --follow --tail 200 --run-dir /r"),
        ("Suspend", JobKey(Origin.HERE, "", "a", "/r/a"), "stop a --run-dir /r"),
        ("Resume", JobKey(Origin.HERE, "", "a", "/r/a"), "run --resume a --detach --run-dir /r"),
        ("Delete", JobKey(Origin.HERE, "", "a", "/r/a"), "rm a --run-dir /r"),
        ("Size", JobKey(Origin.HERE, "", "a", "/r/a"), ""),
        ("Suspend", JobKey(Origin.HISTORY, "", "a", "u"), ""),
        ("Delete", JobKey(Origin.HERE, "", "--all", "/r/--all"), ""),
    ],
)  # fmt: skip
def test_what_a_key_does_is_a_command_that_can_be_typed(label: str, key: JobKey, words: str) -> None:
    act = next(act for act in ACTS if act.label == label)
    assert " ".join(command_of(act, key, GIVEN, "3")) == words
    if words:
        parse(words.split())
