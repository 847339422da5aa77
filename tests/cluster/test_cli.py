"""The commands for clusters against a real API server; the test says what an operator would."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.client import Jobs, connect
from ddpjob_operator.engine.manifests.names import pod_name

from tests.plant import Plant, build, start_api
from tests.plant.api import ADMINS
from tests.support.jobs import Team
from tests.support.waiting import patience, wait_for
from tests.support.warm import Fork, fork_command

BIN = Path(sys.executable).parent
LOST = "its checkpoint.path is not on a volume that outlives its pods"
EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "digits.yaml"

Started = Fork | subprocess.Popen[bytes]


@dataclass
class User:
    """Somebody who calls `ddpjob` in a namespace of their own."""

    plant: Plant
    namespace: str
    directory: Path
    kubeconfig: Path | None = None
    started: list[Started] = field(default_factory=list)

    def start(self, *arguments: str | Path, program: str = "ddpjob") -> Started:
        """Starts a command in the user's namespace; what it prints goes to a file that can be read meanwhile."""
        return self.start_anywhere(*arguments, "-n", self.namespace, program=program)

    def start_anywhere(self, *arguments: str | Path, program: str = "ddpjob") -> Started:
        """The same where no flag says that it is for a cluster."""
        path = {"PATH": f"{BIN}:{build.path('kubectl').parent}:{os.environ['PATH']}", "COLUMNS": "200"}
        env = os.environ | self.plant.environment(self.kubeconfig) | path
        words = [*program.split(), *arguments]
        self.screen.write_bytes(b"")
        process = (
            fork_command(words, env, self.directory, self.screen) if program == "ddpjob" else self._start(words, env)
        )
        self.started.append(process)
        return process

    def _start(self, words: list[str | Path], env: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.screen.open("ab") as output:
            return subprocess.Popen(words, env=env, cwd=self.directory, stdout=output, stderr=subprocess.STDOUT)

    def call(self, *arguments: str | Path, program: str = "ddpjob") -> tuple[int, str]:
        """Calls a command to its end: exit code and all that it printed."""
        code = self.start(*arguments, program=program).wait(timeout=patience(60))
        return code, self.printed

    @property
    def team(self) -> Team:
        """Who else works in the namespace."""
        return Team(self.plant, self.namespace)

    @property
    def screen(self) -> Path:
        return self.directory / "screen"

    @property
    def printed(self) -> str:
        """What the last command has printed so far."""
        return self.screen.read_text()

    def job(self, name: str = "digits") -> Any:
        """The job as the API server has it; None if there is none."""
        return self.team.job(name)

    def say(self, condition: str = "", reason: str = "Test", **status: Any) -> None:
        """Writes status as an operator does: its message, and that the condition of that name is true."""
        known = {one["type"]: one for one in self.job().get("status", {}).get("conditions", [])}
        if condition:
            known[condition] = {
                "type": condition,
                "status": "True",
                "reason": reason,
                "message": status["message"],
                "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "observedGeneration": 1,
            }
        self.team.say(**status, conditions=list(known.values()))

    def asked_for_log_of(self, pod: str) -> bool:
        """Whether somebody has asked the API server for a pod's log."""
        asked = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log?"
        return any(asked in line for line in self.plant.audit_log.read_text().splitlines())

    def wait(self, what: str, condition: Callable[[], Any]) -> None:
        """Waits until a condition holds."""
        wait_for(what, condition, story=lambda: self.printed)

    def reads(self, text: str) -> None:
        """Waits until the last command has printed this."""
        self.wait(text, lambda: text in self.printed)


@pytest.fixture
def user(api: Plant, tmp_path: Path) -> Iterator[User]:
    somebody = User(api, api.new_namespace(), tmp_path)
    yield somebody
    for process in somebody.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_job_is_submitted_looked_at_and_deleted(user: User) -> None:
    code, said = user.call("submit", EXAMPLE)
    assert (code, said.splitlines()) == (
        0,
        [
            f"digits: 2 nodes x 1 process, submitted to namespace {user.namespace} of context plant",
            f"If it is suspended, preempted or restarted with new pods, it starts over: {LOST}",
            f"Watch it with: ddpjob logs digits -n {user.namespace} --follow",
            f"Stop it with: ddpjob delete digits -n {user.namespace}",
        ],
    )
    assert user.job()["spec"]["checkpoint"] == {"path": "/checkpoints", "everySteps": 50, "keep": 3}
    progress = {"percent": 30.0, "step": 120, "totalSteps": 400}
    display = {"ready": "0/2", "progress": "30%", "eta": "56s"}
    seen = {"state": "Starting", "display": display, "progress": progress, "restarts": 3}
    user.say("Created", message="2 nodes created", **seen)
    code, said = user.call("status")
    head, row = said.splitlines()[:2]
    assert head.split() == ["NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE", "MESSAGE"]
    assert row.split()[:6] == ["digits", "Starting", "0/2", "30%", "56s", "3"]
    code, said = user.call("status", "digits")
    assert f"Namespace:    {user.namespace} of context plant\n" in said
    assert "\nState:        Starting\n" in said
    assert said.count("2 nodes created") == 1
    code, said = user.call("status", "digits", "-o", "wide")
    assert "Created             True" in said
    code, said = user.call("describe", "digits")
    assert (code, "Created             True" in said) == (0, True)
    assert re.search(r"^  checkpoint\.everySteps  50$", said, re.MULTILINE)
    assert ", checkpoint.keep 3, " in said.split("Defaults:")[1]
    assert user.call("delete", "digits") == (0, "digits: deleting it\ndigits: deleted\n")
    assert user.job() is None


@pytest.mark.parametrize("command", ["delete digits", "logs -f digits"])
def test_where_a_run_of_this_machine_has_the_name_too_nothing_is_done_before_it_is_said_which(
    user: User, command: str
) -> None:
    user.kubeconfig = user.directory / "kubeconfig"
    config = yaml.safe_load(user.plant.kubeconfig_for("somebody", ADMINS).read_text())
    config["contexts"][0]["context"]["namespace"] = user.namespace
    user.kubeconfig.write_text(yaml.safe_dump(config))
    assert user.call("submit", EXAMPLE)[0] == 0
    run = user.directory / "ddpjob-runs" / "digits"
    run.mkdir(parents=True)
    (run / "job.json").write_text(json.dumps(user.job()))

    def cluster_was_asked() -> bool:
        """On a busy machine it has no answer within the seconds that it gets; this machine's run is then meant."""
        assert user.start_anywhere(*command.split()).wait(timeout=patience(60)) == 2
        return "it has not answered" not in user.printed

    user.wait("an answer of the cluster", cluster_was_asked)
    there = f"namespace {user.namespace} of the cluster of context plant"
    both = f"digits is a run on this machine (ddpjob-runs) and in {there}: say which, with --local or --cluster"
    assert user.printed == f"error: {both}\n"
    assert user.job() is not None
    assert user.start_anywhere("delete", "digits", "--cluster").wait(timeout=patience(60)) == 0
    assert user.job() is None


def test_as_a_plugin_of_kubectl_it_is_the_same(user: User) -> None:
    assert user.call("submit", "-f", EXAMPLE, program="kubectl ddpjob")[0] == 0
    code, said = user.call("status", "-o", "json", program="kubectl ddpjob")
    assert (code, [job["metadata"]["name"] for job in json.loads(said)]) == (0, ["digits"])
    assert (json.loads(said)[0]["apiVersion"], json.loads(said)[0]["kind"]) == ("ddpjob.dev/v1alpha2", "DDPJob")


def test_a_dry_run_says_what_would_be_made_and_makes_nothing(user: User) -> None:
    code, said = user.call("submit", "--dry-run", EXAMPLE)
    assert (code, "would get a Service and 2 pods; nothing was created" in said) == (0, True), said
    assert user.job() is None


def test_a_dry_run_and_a_submission_of_what_exists_say_what_to_do(user: User) -> None:
    user.call("submit", EXAMPLE)
    for arguments in (["--dry-run"], []):
        code, said = user.call("submit", EXAMPLE, *arguments)
        assert (code, said.startswith(f"error: digits exists already in namespace {user.namespace}.")) == (2, True)
        assert f"kubectl apply -n {user.namespace} -f {EXAMPLE}" in said
        assert f"ddpjob delete digits -n {user.namespace}" in said


def test_a_mistake_in_the_file_has_its_line_and_nothing_is_made(user: User) -> None:
    file = user.directory / "wrong.yaml"
    file.write_text(EXAMPLE.read_text().replace("nodes: 2", "nodes: 0"))
    code, said = user.call("submit", file)
    assert (code, "line 8: spec.nodes: 0 is too small; it must be at least 1" in said) == (2, True), said
    assert user.job() is None


def test_what_only_the_server_finds_wrong_is_told_in_its_words(user: User) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["metadata"]["labels"] = {"team": "not a label!"}
    file = user.directory / "label.yaml"
    file.write_text(yaml.safe_dump(document))
    code, said = user.call("submit", file)
    assert (code, said.startswith("error: the API server refuses digits: ")) == (2, True), said
    assert "metadata.labels" in said


def test_a_field_that_the_server_does_not_know_is_refused_and_not_dropped(user: User) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["nodez"] = 3
    jobs = Jobs(connect(user.plant.kubeconfig, namespace=user.namespace))
    with pytest.raises(BadInputError, match=r'unknown field "spec\.nodez"'):
        jobs.create(document)
    assert user.job() is None


def test_namespaces_that_differ_or_do_not_exist_are_named(user: User) -> None:
    file = user.directory / "elsewhere.yaml"
    file.write_text(EXAMPLE.read_text().replace("name: digits", "name: digits\n  namespace: elsewhere"))
    expected = f"error: metadata.namespace is elsewhere and --namespace is {user.namespace}; they must agree\n"
    assert user.call("submit", file) == (2, expected)
    user.namespace = "elsewhere"
    code, said = user.call("submit", file)
    assert (code, "create it with: kubectl create namespace elsewhere" in said) == (2, True), said


def test_waiting_tells_what_becomes_of_the_job_and_ends_with_its_success(user: User) -> None:
    waiting = user.start("submit", "--wait", EXAMPLE)
    user.wait("the job", user.job)
    user.say(state="Pending", message="exceeded quota: pods")
    user.reads("ddpjob: exceeded quota: pods\n")
    user.say("Created", state="Starting", message="2 nodes created")
    user.say("Running", state="Running", message="2 nodes running")
    user.reads("ddpjob: Created: 2 nodes created\nddpjob: Running: 2 nodes running\n")
    user.say("Complete", state="Succeeded", message="2 nodes finished")
    assert waiting.wait(patience(60)) == 0
    assert "\ndigits: Succeeded. 2 nodes finished\n  restarts   0\n" in user.printed


def test_waiting_ends_with_the_exit_code_of_the_rank_that_failed_first(user: User) -> None:
    waiting = user.start("submit", "--wait", EXAMPLE)
    user.wait("the job", user.job)
    failure = {"time": "2026-01-01T00:00:00.000000Z", "attempt": 1, "node": 1, "rank": 1, "pod": "digits-1-x"}
    failure |= {"cause": "Application", "message": "ValueError: no", "exitCode": 7}
    user.say("Failed", state="Failed", message="Rank 1 failed", incidents=[failure])
    assert waiting.wait(patience(60)) == 7
    assert "digits: Failed. Rank 1 failed\n" in user.printed
    assert f"Look at its log with: ddpjob logs digits -n {user.namespace} --node 1\n" in user.printed


def test_ctrl_c_leaves_the_job_running_and_says_so(user: User) -> None:
    waiting = user.start("submit", "--wait", EXAMPLE)
    user.wait("the job", user.job)
    user.say("Running", state="Running", message="2 nodes running")
    user.reads("ddpjob: Running")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(patience(60)) == 130
    assert "digits goes on in the cluster\n" in user.printed
    assert user.job() is not None


def test_waiting_ends_when_the_job_is_deleted(user: User) -> None:
    waiting = user.start("submit", "--wait", EXAMPLE)
    user.wait("the job", user.job)
    user.team.delete("ddpjobs", "digits")
    assert waiting.wait(patience(60)) == 1
    assert "error: digits was deleted\n" in user.printed


def test_logs_say_what_they_wait_for(user: User) -> None:
    user.call("submit", EXAMPLE)
    assert user.call("logs", "digits", "--node", "2") == (
        2,
        "error: digits has no node 2: its nodes are numbered 0 to 1\n",
    )
    user.say("Created", state="Starting", message="0 of 2 pods running; rank 1 waits: no node has a free GPU")
    code, said = user.call("logs")
    assert (code, said) == (
        0,
        "ddpjob: nothing has started yet: 0 of 2 pods running; rank 1 waits: no node has a free GPU\n",
    )
    following = user.start("logs", "digits", "--follow")
    user.reads("ddpjob: 0 of 2 pods running; rank 1 waits: no node has a free GPU\n")
    user.say("Failed", state="Failed", message="Given up")
    assert following.wait(patience(60)) == 0


def test_deleting_waits_for_the_pods_unless_told_otherwise(user: User) -> None:
    user.call("submit", EXAMPLE)
    name = a_pod(user, rank=0, attempt=1)
    deleting = user.start("delete", "digits")
    user.wait("the job to go", lambda: user.job() is None)
    user.reads("digits: deleting it, its Service and 1 pod\n")
    assert deleting.poll() is None
    user.team.delete("pods", name, grace=0)
    assert deleting.wait(patience(60)) == 0
    user.call("submit", EXAMPLE)
    assert user.call("delete", "digits", "--wait=false") == (0, "digits: deleting it\n")


def test_a_job_is_suspended_and_resumed(user: User) -> None:
    user.call("submit", EXAMPLE)
    said = f"digits: suspended; its pods stop, and on resume it starts over: {LOST}\n"
    said += f"Go on with: ddpjob resume digits -n {user.namespace}\n"
    assert user.call("suspend", "digits") == (0, said)
    assert user.job()["spec"]["suspend"] is True
    assert user.call("suspend", "digits") == (0, "digits: suspended already\n")
    assert user.call("resume", "digits", program="kubectl ddpjob") == (0, "digits: resumed\n")
    assert user.job()["spec"]["suspend"] is False
    assert user.call("resume", "digits") == (0, "digits: not suspended\n")


def test_a_job_gets_another_number_of_nodes(user: User) -> None:
    user.call("submit", EXAMPLE)
    assert user.call("scale", "digits", "--nodes", "3") == (0, "digits: scaled from 2 to 3 nodes\n")
    user.say("Running", state="Running", message="3 nodes running", attempt=1)
    said = f"digits: scaled from 3 to 1 node; its pods stop, and new ones start over: {LOST}\n"
    assert user.call("scale", "digits", "--nodes", "1") == (0, said)
    assert user.job()["spec"]["nodes"] == 1
    assert user.call("scale", "digits", "--nodes", "1") == (0, "digits: already has 1 node\n")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (0, "--nodes 0 is too small; to stop a job and keep it: ddpjob suspend digits"),
        (1, "spec.nodes: Invalid value: is less than elastic.minNodes"),
        (4, "spec.nodes: Invalid value: is more than elastic.maxNodes"),
        (5000, "spec.nodes: Invalid value: 5000: spec.nodes in body should be less than or equal to 4096"),
    ],
)
def test_a_number_of_nodes_that_the_job_may_not_have_is_refused(user: User, nodes: int, message: str) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["elastic"] = {"minNodes": 2, "maxNodes": 3}
    file = user.directory / "elastic.yaml"
    file.write_text(yaml.safe_dump(document))
    assert user.call("submit", file)[0] == 0
    code, said = user.call("scale", "digits", "--nodes", str(nodes))
    assert (code, message in said, said.count("\n")) == (2, True, 1), said
    assert user.job()["spec"]["nodes"] == 2


def test_what_has_finished_is_not_changed_any_more(user: User) -> None:
    user.call("submit", EXAMPLE)
    user.say("Complete", state="Succeeded", message="2 nodes finished")
    for arguments in (("suspend", "digits"), ("resume", "digits"), ("scale", "digits", "--nodes", "3")):
        code, said = user.call(*arguments)
        anew = f"To run it again, first: ddpjob delete digits -n {user.namespace}"
        assert (code, said) == (2, f"error: digits has succeeded and cannot be changed. {anew}\n")


def test_the_right_to_scale_is_enough_to_scale_and_not_to_suspend(user: User) -> None:
    user.call("submit", EXAMPLE)
    rules = [
        {"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs"], "verbs": ["get"]},
        {"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs/scale"], "verbs": ["patch"]},
    ]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    role = {**kind, "kind": "Role", "metadata": {"name": "scaler", "namespace": user.namespace}, "rules": rules}
    bound = {"subjects": [{"kind": "User", "name": "scaler"}], "roleRef": {"kind": "Role", "name": "scaler"}}
    binding = {**role, "kind": "RoleBinding", **bound}
    del binding["rules"]
    for document in (role, binding):
        user.team.create(document)
    user.kubeconfig = user.plant.kubeconfig_for("scaler")
    assert user.call("scale", "digits", "--nodes", "3")[0] == 0
    code, said = user.call("suspend", "digits")
    assert (code, 'User "scaler" cannot patch resource "ddpjobs"' in said) == (1, True), said


def test_a_job_that_somebody_else_brings_forward_says_so(user: User) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["managedBy"] = "example.com/queue"
    file = user.directory / "queued.yaml"
    file.write_text(yaml.safe_dump(document))
    waiting = user.start("submit", "--wait", file)
    user.reads("ddpjob: example.com/queue manages this job (managedBy)")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(patience(60)) == 130
    assert "example.com/queue manages this job (managedBy)" in user.call("status", "digits")[1]


def test_previous_logs_are_those_of_the_pods_that_are_kept(user: User) -> None:
    user.call("submit", EXAMPLE)
    bookkeeping = {"incarnations": {"default": 3}}
    user.say("Running", state="Running", message="2 nodes running", attempt=3, nodes=2, bookkeeping=bookkeeping)
    pods = {place: a_pod_that_ran(user, *place) for place in ((0, 3), (1, 3), (1, 2), (0, 1))}
    for arguments, (rank, attempt) in (
        (["--previous"], (1, 2)),
        (["--attempt", "1"], (0, 1)),
        (["--attempt", "3", "--node", "1"], (1, 3)),
    ):
        code, said = user.call("logs", "digits", *arguments)
        # There is no node that has the log; what is asked for shows in the answer.
        assert (code, said.count("\n")) == (1, 1), said
        assert said.startswith(f"ddpjob: rank {rank}: "), said
        assert user.asked_for_log_of(pods[rank, attempt])
    left = "error: no log of attempt 7 is left; there is 1, 2, 3\n"
    assert user.call("logs", "digits", "--attempt", "7") == (2, left)
    left = "error: no log of node 0 is left of attempt 2; there is 1\n"
    assert user.call("logs", "digits", "--previous", "--node", "0") == (2, left)


def a_pod(user: User, rank: int, attempt: int, **spec: str) -> str:
    """Makes a pod as the operator does, with all that shows whose it is; its name."""
    job = DDPJob.from_dict(user.job())
    name, uid = pod_name(job, rank, attempt), job.metadata.uid
    labels = {"ddpjob.dev/job-uid": uid, "ddpjob.dev/node": str(rank), "ddpjob.dev/incarnation": str(attempt)}
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": "digits", "uid": uid, "controller": True}
    metadata = {"name": name, "namespace": user.namespace, "labels": labels, "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    trainer = {"name": "trainer", "image": "any", "env": [{"name": "DDPJOB_ATTEMPT", "value": str(attempt)}]}
    user.team.create({**pod, "spec": {"containers": [trainer], **spec}})
    return name


def a_pod_that_ran(user: User, rank: int, attempt: int) -> str:
    """A pod as a kubelet leaves it whose trainer has failed; its name."""
    name = a_pod(user, rank, attempt, nodeName="nowhere")
    ended = {"name": "trainer", "image": "any", "imageID": "any", "ready": False, "restartCount": 0}
    ended |= {"state": {"terminated": {"exitCode": 3}}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    user.plant.api.patch(f"{user.team.path('pods')}/{name}/status", {"status": status})
    return name


def test_a_job_that_is_not_there_is_told_with_those_that_are(user: User) -> None:
    user.call("submit", EXAMPLE)
    for command in ("status", "logs", "suspend", "resume", "scale --nodes 1", "delete"):
        code, said = user.call(*command.split(), "digitz")
        where = f"no DDPJob digitz in namespace {user.namespace} of the cluster of context plant"
        assert (code, said) == (2, f"error: {where}; did you mean digits?\n")


def test_somebody_without_rights_is_told_which_and_whom_to_ask_for(user: User) -> None:
    user.kubeconfig = user.plant.kubeconfig_for("stranger")
    for arguments, verb in ((["submit", EXAMPLE], "create"), (["status"], "list"), (["delete", "x"], "get")):
        code, said = user.call(*arguments)
        assert (code, said.count("\n")) == (1, 1), said
        assert f'User "stranger" cannot {verb} resource "ddpjobs"' in said
        assert "Ask for the ClusterRole ddpjob-edit" in said


def test_a_cluster_without_ddpjob_is_told_how_it_gets_there(tmp_path: Path) -> None:
    with start_api() as bare:
        somebody = User(bare, "default", tmp_path)
        (tmp_path / "train.py").touch()
        for arguments in (["submit", "train.py"], ["status"], ["delete", "x"]):
            code, said = somebody.call(*arguments)
            assert (code, said.count("error: "), "Traceback" in said) == (2, 1, False), said
            assert "DDPJob is not installed in the cluster of context plant: helm install" in said
        maps = bare.get("/api/v1/namespaces/default/configmaps?labelSelector=ddpjob.dev/code")
        assert maps["items"] == [], "its code is not sent either"


def test_a_pod_that_reads_a_claim_is_admitted_by_the_restricted_standard_and_gone_after_ctrl_c(user: User) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    user.plant.api.patch(f"/api/v1/namespaces/{user.namespace}", {"metadata": {"labels": labels}})
    words = ("logs", "digits", "--history", "pvc://data/kept", "--reader-image", "python:3")
    code, output = user.call(*words)
    assert (code, output) == (2, f"error: there is no claim data in namespace {user.namespace}\n")
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    user.team.create(claim)
    reading = user.start(*words)
    user.wait("a pod", lambda: user.team.all("pods"))
    (pod,) = user.team.all("pods", "app.kubernetes.io/name=ddpjob-history-reader")
    assert pod["metadata"]["name"].startswith("ddpjob-history-")
    reading.send_signal(signal.SIGINT)
    assert reading.wait(timeout=patience(60)) == 130, user.printed
    assert user.team.all("pods") == []


OVER = {
    "type": "Complete",
    "status": "True",
    "reason": "Done",
    "message": "All ranks finished",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}


def test_of_two_held_jobs_of_one_name_the_namespace_says_which(user: User, tmp_path_factory: Any) -> None:
    other = User(user.plant, user.plant.new_namespace(), tmp_path_factory.mktemp("other"))
    (user.directory / "train.py").write_text("print()")
    for each in (user, other):
        assert each.call("hold", "dev", "--nodes", "2")[0] == 0, each.printed
    user.team.say("dev", message="waiting for GPUs")
    other.team.say("dev", message="All ranks finished", conditions=[OVER])
    run = ["run", "--on", "dev", user.directory / "train.py"]
    waits = user.start(*run)
    user.reads("ddpjob: dev is not ready: waiting for GPUs\n")
    waits.kill()
    assert other.call(*run)[0] == 2
    n = f"-n {other.namespace}"
    ended = (
        f"error: dev has ended: All ranks finished; delete it: ddpjob delete dev {n}; and hold it again: ddpjob hold"
    )
    assert f"{ended} dev {n}\n" in other.printed
    third = User(user.plant, user.plant.new_namespace(), user.directory)
    code, said = third.call(*run)
    assert (code, said.splitlines()[-1].partition(";")[0]) == (
        2,
        f"error: no DDPJob dev in namespace {third.namespace} of the cluster of context plant",
    )
