"""What may change while a job's processes run, and what does not when it goes on."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError, DDPJob, DDPJobSpec, DDPJobStatus
from ddpjob_operator.api.git_state import BRANCH, COMMIT, DIRTY
from ddpjob_operator.api.job import renewed
from ddpjob_operator.api.status import NetworkStatus
from ddpjob_operator.api.trace_context import TRACEPARENT, TRACESTATE
from ddpjob_operator.local import RunDirectory, end_ranks, lifecycle, open_job, stop_job
from ddpjob_operator.local.lifecycle import stops_first

TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["x"]}]}}
JOB = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": TEMPLATE}})


def test_a_change_that_running_processes_cannot_follow_stops_them_first_and_no_other_does() -> None:
    def spec(**fields: object) -> DDPJobSpec:
        return DDPJobSpec.model_validate({"template": TEMPLATE, **fields})

    assert stops_first(spec(), spec(network={"masterPort": 29600}))
    assert stops_first(spec(suspend=True), spec(network={"masterPort": 29600}))
    assert stops_first(spec(), spec(checkpoint={"path": "/runs"}))
    assert not stops_first(spec(), spec(nodes=2, suspend=True))
    assert not stops_first(spec(), spec(managedBy="example.com/other"))


@pytest.mark.parametrize(
    ("end", "goes_on"), [(None, True), ("Complete", True), ("Failed", False)], ids=["no end", "success", "failure"]
)
def test_a_run_goes_on_until_it_has_failed_which_is_kept_beside_the_next_one(
    end: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "digits")
    run.create()
    first = open_job(run, JOB, [], print, fresh=False)
    said = {"type": end, "status": "True", "reason": "Any", "message": "", "observedGeneration": 1}
    said |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    run.save(first.model_copy(update={"status": DDPJobStatus.model_validate({"conditions": [said] if end else []})}))
    run.service_file.write_text("{}")
    run.make_secret()
    run.request_checkpoint("soon")
    made = run.made
    assert (open_job(run, JOB, [], print, fresh=False).metadata.uid == first.metadata.uid) is goes_on
    assert bool([*run.root.glob("former-*/job.json")]) is not goes_on
    kept = (run.service_file.exists(), run.made, run.checkpoint_request)
    assert kept == ((True, made, "soon") if goes_on else (False, None, "")), "the next one makes its own"


def test_a_run_that_goes_on_keeps_its_trace_context_unless_there_is_a_newer_one(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "digits")
    run.create()
    contexts = [{"ddpjob.dev/traceparent": f"00-{digit * 32}-{digit * 16}-01"} for digit in "12"]
    first, second = (
        DDPJob.from_dict({**JOB.to_document(), "metadata": {"name": "digits", "annotations": context}})
        for context in contexts
    )
    opened = []
    for wanted in (first, JOB, second):
        opened.append(open_job(run, wanted, [], print, fresh=False))
        run.save(opened[-1])
    assert [job.metadata.annotations for job in opened] == [contexts[0], contexts[0], contexts[1]]
    assert len({job.metadata.uid for job in opened}) == 1


def test_a_run_that_goes_on_from_another_commit_forgets_the_branch_of_the_former_one() -> None:
    trace = {TRACEPARENT: f"00-{'1' * 32}-{'1' * 16}-01", TRACESTATE: "a=1"}
    branch = {COMMIT: "1" * 40, BRANCH: "main", DIRTY: "true"}
    detached = {COMMIT: "2" * 40, DIRTY: "false"}
    assert renewed(trace | branch, detached) == trace | detached
    assert renewed(trace | branch, {TRACEPARENT: "other"}) == {TRACEPARENT: "other", **branch}
    assert renewed(branch, None) == branch
    assert renewed(None, {}) is None


def test_a_fresh_run_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "digits")
    run.create()
    first = open_job(run, JOB, [], print, fresh=False)
    run.save(first.model_copy(update={"status": DDPJobStatus(network=NetworkStatus(service="digits-8cx92"))}))
    run.service_file.write_text("{}")
    run.make_secret()
    run.request_checkpoint("soon")
    for directory in (run.logs, run.volumes):
        (directory / "first").mkdir()
    assert open_job(run, JOB, [], print, fresh=True).metadata.uid != first.metadata.uid
    assert (run.service_file.exists(), run.made, run.checkpoint_request, run.load()) == (False, None, "", None)
    assert not [*run.root.glob("*/first")]


Opened = Callable[..., tuple[Path | None, list[str]]]


@pytest.fixture
def opened_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens a run from a directory, and tells where its ranks then work and what was said."""
    run = RunDirectory(tmp_path / "runs" / "digits")
    run.create()

    def opened(name: str, *, fresh: bool = False) -> tuple[Path | None, list[str]]:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        monkeypatch.chdir(directory)
        said: list[str] = []
        run.save(open_job(run, JOB, [], lambda event: said.append(event.message), fresh=fresh))
        return run.work, said

    return opened


def test_the_ranks_work_where_the_run_was_started_first_wherever_it_goes_on(
    opened_in: Opened, tmp_path: Path
) -> None:
    assert opened_in("one") == (tmp_path / "one", [])
    said = f"the ranks run in {tmp_path}/one, where this run was first started; to start a new run here: --fresh"
    assert opened_in("two") == (tmp_path / "one", [said])
    assert opened_in("one") == (tmp_path / "one", [])
    where, said_now = opened_in("two", fresh=True)
    assert where == tmp_path / "two"
    assert "1 node created" not in said_now, "the former run only ends"


def test_where_that_directory_is_gone_they_work_where_the_run_goes_on_and_that_is_said(
    opened_in: Opened, tmp_path: Path
) -> None:
    opened_in("one")
    (tmp_path / "one").rename(tmp_path / "moved")
    said = (
        f"the ranks run in {tmp_path}/moved, because {tmp_path}/one, where this run was first started, no "
        "longer exists"
    )
    assert opened_in("moved") == (tmp_path / "moved", [said])
    assert opened_in("moved") == (tmp_path / "moved", [])


def test_each_change_of_a_run_is_a_generation_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "digits")
    run.create()
    seen = []
    for nodes in (1, 1, 2, 3, 3):
        wanted = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"nodes": nodes, "template": TEMPLATE}})
        run.save(job := open_job(run, wanted, [], print, fresh=False))
        seen.append((job.spec.nodes, job.metadata.generation))
    assert seen == [(1, 1), (1, 1), (2, 2), (3, 3), (3, 3)]


@pytest.mark.parametrize("ended", [False, True])
def test_what_an_older_release_has_begun_is_told_and_left_as_it_is_unless_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DDPJobStatus, "former", True)
    monkeypatch.setattr(DDPJobStatus, "finished", ended)
    monkeypatch.setattr(DDPJobStatus, "succeeded", ended)
    run = RunDirectory(tmp_path / "digits")
    run.create()
    run.save(JOB)
    before = run.job_file.read_text()
    for act in (
        lambda: open_job(run, JOB, [], print, fresh=False),
        *(
            ()
            if ended
            else (lambda: open_job(run, JOB, [], print, fresh=True), lambda: stop_job(run, JOB, [], print))
        ),
    ):
        says = "digits was started by a release with v1alpha1 of the DDPJob type.* remove the run: ddpjob rm digits"
        with nullcontext() if ended else pytest.raises(BadInputError, match=says):
            act()
        assert run.job_file.read_text() == before


def test_ranks_are_ended_without_a_word_on_disk_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, done = RunDirectory(tmp_path / "digits"), list[str]()
    run.create()
    for name in ("terminate", "wait"):
        monkeypatch.setattr(lifecycle.Pods, name, lambda _, name=name: done.append(name))
    end_ranks(run)
    assert done == ["terminate", "wait"]
