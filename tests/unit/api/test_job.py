"""What a valid file means: defaults, what is left out, what Auto stands for."""

import json
import signal
from typing import Any

import pytest
from ddpjob_operator.api import (
    Backend,
    Checkpoint,
    CleanPodPolicy,
    DDPJob,
    DDPJobStatus,
    ExitCodes,
    Network,
    Restart,
    RestartAction,
    SuccessPolicy,
)
from ddpjob_operator.api.job_file import parse, written
from ddpjob_operator.api.problems import dotted
from ddpjob_operator.api.restart import ExitCodesOperator, Signal
from ddpjob_operator.api.spec import Elastic

from .documents import a_file, complaint, job


def test_a_file_that_says_nothing_gets_the_documented_defaults() -> None:
    spec = job(a_file()).spec
    assert (spec.nodes, spec.procs_per_node, spec.backend) == (1, None, Backend.AUTO)
    assert (spec.suspend, spec.active_deadline_seconds, spec.checkpoint) == (False, None, None)
    assert spec.network == Network(
        master_port=29500, status_port=29501, control_port=29502, wait_for_master=True, policy=None
    )
    assert spec.restart == Restart(
        max_restarts=6,
        max_disruptions=None,
        window_seconds=3600,
        backoff_seconds=1,
        max_backoff_seconds=300,
        grace_period_seconds=5,
        rules=(),
    )
    assert (spec.start_deadline_seconds, spec.ttl_seconds_after_finished, spec.elastic) == (None, None, None)
    assert (spec.schedule_timeout_seconds, spec.finish_timeout_seconds) == (600, 1800)
    assert (spec.success_policy, spec.clean_pod_policy) == (SuccessPolicy.ALL_RANKS, CleanPodPolicy.RUNNING)


def test_an_elastic_job_may_have_any_size_and_waits_two_minutes_for_its_places() -> None:
    assert job(a_file("elastic: {}")).spec.elastic == Elastic(min_nodes=1, max_nodes=None, shrink_after_seconds=120)


MANAGERS: dict[str, tuple[str, bool]] = {
    "nobody is named": ("", True),
    "this operator is": ("managedBy: ddpjob.dev/operator", True),
    "another is": ("managedBy: kueue.x-k8s.io/multikueue", False),
}


@pytest.mark.parametrize(("spec", "ours"), MANAGERS.values(), ids=MANAGERS)
def test_a_job_is_this_operators_unless_it_names_another(spec: str, *, ours: bool) -> None:
    assert job(a_file(spec)).spec.ours is ours


def test_a_rule_names_exit_codes_and_signals_as_they_stand() -> None:
    exit_codes = "exitCodes: {operator: NotIn, values: [64, 3]}"
    (rule,) = job(
        a_file(f"restart:\n  rules:\n    - {{{exit_codes}, signals: [SIGBUS], action: RestartFree}}")
    ).spec.restart.rules
    assert rule.exit_codes == ExitCodes(operator=ExitCodesOperator.NOT_IN, values=(64, 3))
    assert (rule.signals, rule.causes) == ((Signal.BUS,), None)
    assert rule.action is RestartAction.RESTART_FREE


def test_signals_have_the_numbers_of_this_system() -> None:
    known = [one for one in Signal if hasattr(signal, one)]
    assert [one.number for one in known] == [getattr(signal, one).value for one in known]
    assert [one.number for one in Signal] == list(range(1, 32))


def test_a_checkpoint_is_kept_three_times_at_the_end_of_each_epoch() -> None:
    checkpoint = job(a_file("checkpoint: {path: /runs}")).spec.checkpoint
    assert checkpoint == Checkpoint(
        path="/runs", volume=None, every_steps=None, every_seconds=None, interval=None, keep=3
    )


@pytest.mark.parametrize(
    "spec",
    [
        *("nodes: null", "restart: null", "restart: {maxRestarts: null}", "checkpoint: null"),
        *("activeDeadlineSeconds: null", "procsPerNode: null", "elastic: null", "managedBy: null"),
        *("restart: {rules: null}", "cleanPodPolicy: null", "ttlSecondsAfterFinished: null"),
    ],
)
def test_null_is_as_good_as_nothing(spec: str) -> None:
    assert job(a_file(spec)) == job(a_file())


def test_null_in_the_template_is_as_good_as_nothing() -> None:
    assert job(a_file(container="env: null", pod="nodeSelector: null")).spec.template == job(a_file()).spec.template


def test_the_limits_themselves_are_allowed() -> None:
    widest = a_file(
        "nodes: 4096\nprocsPerNode: 64\nnetwork: {masterPort: 65535}\nelastic: {minNodes: 4096, maxNodes: 4096}\n"
        "ttlSecondsAfterFinished: 0\nstartDeadlineSeconds: 1\n"
        "restart: {maxRestarts: 0, maxDisruptions: 0, backoffSeconds: 300, "
        f"rules: [{{exitCodes: {{operator: In, values: {[*range(1, 256)]}}}, action: Fail}}]}}"
    )
    assert complaint(widest.replace("name: digits", "name: " + "a" * 52)) == ""


def test_a_status_in_the_file_is_ignored_whatever_it_says() -> None:
    pasted = a_file() + "status:\n  attempt: 7\n  fromAnotherVersion: {}\n"
    assert job(pasted).status == DDPJobStatus()


def test_metadata_of_others_is_left_alone() -> None:
    text = a_file().replace("  name: digits", "  name: digits\n  labels: {team: vision}\n  annotations: {a: b}")
    assert job(text).metadata.name == "digits"
    assert job(text).metadata.namespace == "default"


def test_other_objects_in_the_file_are_named() -> None:
    job_file = parse(f"kind: ConfigMap\n---\n{a_file()}---\nkind: Secret\n---\n", "job.yaml")
    assert job_file.others == ("ConfigMap", "Secret")


def test_yaml_anchors_work() -> None:
    text = a_file(
        container="env: &env\n  - {name: A, value: a}", pod="initContainers: [{name: i, image: i:1, env: *env}]"
    )
    pod = job(text).spec.template["spec"]
    assert pod["initContainers"][0]["env"] == pod["containers"][0]["env"]


GPUS: dict[str, tuple[str, str, int, Backend]] = {
    "nothing is asked for": ("", "", 1, Backend.GLOO),
    "only CPUs": ("", "resources: {limits: {cpu: 4}}", 1, Backend.GLOO),
    "no GPU, in so many words": ("", "resources: {limits: {nvidia.com/gpu: 0}}", 1, Backend.GLOO),
    "two GPUs": ("", "resources: {limits: {nvidia.com/gpu: 2}}", 2, Backend.NCCL),
    "two GPUs as a string": ("", 'resources: {limits: {nvidia.com/gpu: "2"}}', 2, Backend.NCCL),
    "two GPUs, said twice": (
        "",
        "resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 2}}",
        *(2, Backend.NCCL),
    ),
    "another maker's": ("", "resources: {limits: {amd.com/gpu: 4}}", 4, Backend.NCCL),
    "slices": ("", "resources: {limits: {nvidia.com/mig-1g.5gb: 3}}", 3, Backend.NCCL),
    "something that only sounds like one": ("", "resources: {limits: {nvidia.com/gpu-memory: 9}}", 1, Backend.GLOO),
    "a number beside GPUs": ("procsPerNode: 1", "resources: {limits: {nvidia.com/gpu: 2}}", 1, Backend.NCCL),
    "a backend beside GPUs": ("backend: Gloo", "resources: {limits: {nvidia.com/gpu: 2}}", 2, Backend.GLOO),
    "a backend without GPUs": ("backend: NCCL\nprocsPerNode: 8", "", 8, Backend.NCCL),
}


@pytest.mark.parametrize(("spec", "container", "procs", "backend"), GPUS.values(), ids=GPUS)
def test_auto_goes_by_the_trainers_requests(spec: str, container: str, procs: int, backend: Backend) -> None:
    asked = job(a_file(spec, container=container)).spec
    assert (asked.resolved_procs_per_node(), asked.resolved_backend()) == (procs, backend)


SHARED = "nvidia.com/gpu.shared"
NAMED: dict[str, tuple[str, str, tuple[str, ...], int, Backend]] = {
    "one that nobody named": ("", "{nvidia.com/gpu.shared: 2}", (), 1, Backend.GLOO),
    "one that the administrator named": ("", "{nvidia.com/gpu.shared: 2}", (SHARED,), 2, Backend.NCCL),
    "beside a whole one": ("", '{nvidia.com/gpu.shared: "2", nvidia.com/gpu: 1}', (SHARED,), 3, Backend.NCCL),
    "all that begin so": ("", "{gpu.intel.com/i915: 2}", ("gpu.intel.com/i-", "gpu.intel.com/"), 1, Backend.GLOO),
    "all that begin with a dash at the end": (
        "",
        "{example.com/gpu-small: 3}",
        ("example.com/gpu-",),
        3,
        Backend.NCCL,
    ),
    "a number beside it": ("procsPerNode: 1", "{nvidia.com/gpu.shared: 2}", (SHARED,), 1, Backend.NCCL),
    "as many as a node may have processes": ("", "{nvidia.com/gpu.shared: 100}", (SHARED,), 64, Backend.NCCL),
    "what the pod is refused for": ("", "{nvidia.com/gpu.shared: 1500m}", (SHARED,), 1, Backend.GLOO),
}


@pytest.mark.parametrize(("spec", "limits", "also", "procs", "backend"), NAMED.values(), ids=NAMED)
def test_resources_that_the_administrator_names_count_as_gpus(
    spec: str, limits: str, also: tuple[str, ...], procs: int, backend: Backend
) -> None:
    asked = job(a_file(spec, container=f"resources: {{limits: {limits}}}")).spec
    assert (asked.resolved_procs_per_node(also), asked.resolved_backend(also)) == (procs, backend)


def test_a_sidecars_gpu_counts_for_nobody() -> None:
    text = a_file(pod="  - {name: side, image: side:1, resources: {limits: {nvidia.com/gpu: 2}}}")
    assert job(text).spec.resolved_procs_per_node() == 1


def test_a_job_goes_through_json_unchanged() -> None:
    one = job(a_file("nodes: 3\ncheckpoint: {path: /runs, everySteps: 5, volume: {emptyDir: {}}}"))
    document: dict[str, Any] = json.loads(json.dumps(one.to_document()))
    assert document["spec"]["checkpoint"]["everySteps"] == 5
    assert DDPJob.from_dict(document) == one


def test_paths_are_written_as_people_write_them() -> None:
    assert dotted(("spec", "template", "spec", "containers", 0, "name")) == "spec.template.spec.containers[0].name"
    assert dotted(()) == ""


def test_every_status_that_is_written_shows_that_this_version_keeps_its_books_in_it() -> None:
    bookkeeping = DDPJobStatus().to_dict()["bookkeeping"]
    assert isinstance(bookkeeping, dict)
    assert bookkeeping["incarnations"] == {"default": 0, "former": 0}


def test_a_status_is_written_without_what_is_empty_and_read_as_the_same() -> None:
    failure = {"time": "2026-01-01T12:00:00.000000Z", "attempt": 1, "node": 0, "pod": "digits-0", "cause": "Evicted"}
    status = DDPJobStatus.model_validate({"attempt": 2, "incidents": [failure], "stragglers": []})
    written = status.to_dict()
    assert not {"conditions", "stragglers", "network", "progress"} & written.keys()
    assert not {"atStart", "tied", "consequenceNodes"} & set(written["incidents"][0])  # type: ignore[call-overload]
    assert (written["attempt"], written["restarts"], written["state"], written["reason"]) == (2, 0, "Pending", "")
    assert DDPJobStatus.model_validate(written) == status


def test_a_document_is_written_as_a_person_would() -> None:
    shared = {"e": 1}
    assert written({"b": "x\ny\n", "a": ["u", "v"], "c": [shared, shared], "d": ["x\ny"]}) == (
        "b: |\n  x\n  y\na: [u, v]\nc:\n  - e: 1\n  - e: 1\nd:\n  - |-\n    x\n    y\n"
    )
