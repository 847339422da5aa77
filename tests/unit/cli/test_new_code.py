"""`ddpjob submit --replace --in-place`: what may change, in which order it is done, and what is said if it stops."""

import base64
import contextlib
import importlib
import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.client import Cluster, ClusterError, Document
from ddpjob_operator.client.code import DIGEST, Code

from tests.unit.client.api import A_POD, a_cluster, jobs_with

submit = importlib.import_module("ddpjob_operator.cli.cluster.submit")
talk = importlib.import_module("ddpjob_operator.cli.cluster.talk")
in_place = importlib.import_module("ddpjob_operator.cli.cluster.new_code")

COMMAND = ["train.py", "--nodes", "2", "--env", "A=b", "--", "--lr", "0.1"]


class Supervisor:
    """Rank 0's supervisor, as far as the command sees it."""

    problem, is_missing = "", False

    def __init__(self, asked: list[Any], *answers: dict[str, Any]) -> None:
        self.asked, self.answers = asked, list(answers)
        self.code = b""

    def send(self, line: bytes) -> None:
        said = json.loads(line)
        if said["kind"] == "TheCode":
            self.code += base64.b64decode(said["data"])
        else:
            self.asked.append(said["kind"])

    def lines(self) -> Iterator[bytes]:
        for answer in self.answers:
            yield json.dumps(answer).encode()


class World:
    """A job that runs, and its cluster. `asked` is what is done to it, in order."""

    def __init__(self, job: Document, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> None:
        self.job, self.asked, self.formers = job, list[Any](), list[str | None]()
        self.supervisor = Supervisor(self.asked, *answers)
        self.jobs = jobs_with(
            get=lambda _: self.job,
            find=lambda _: self.job,
            pods=lambda _: [A_POD],
            replace_code=self.replace_code,
            cluster=self,
        )
        monkeypatch.setattr(Code, "own", lambda _, code, __: self.asked.append(f"own {code['metadata']['name']}"))
        monkeypatch.setattr(Code, "release", lambda *_: self.asked.append("release"))

    def replace_code(
        self, job: Document, config_map: str, former: str | None, annotations: dict[str, str]
    ) -> Document:
        assert annotations[DIGEST].startswith("sha256:")
        self.formers.append(former)
        self.asked.append("change the job")
        self.job = deepcopy(job)
        self.job["spec"]["code"] = {"configMap": config_map, "revision": 1}
        return self.job

    @contextlib.contextmanager
    def start_in_pod(self, name: str, container: str, command: Sequence[str]) -> Iterator[Supervisor]:
        assert (name, container, command) == (A_POD.name, "trainer", talk.SPEAK)
        yield self.supervisor


OLD = "0" * 64
FAILED = "failed in attempt 2 before its first step: rank 1: Application: NameError: x (train.py:3)"
ANSWERS = (
    {"kind": "SendCode"},
    {"kind": "Ready", "former": OLD},
    {"kind": "Begun", "attempt": 2},
    {"kind": "Going"},
    {"kind": "Tried", "failed": ""},
)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script = Path("train.py")
    script.write_text("print('old')")
    return script


def parcel_of(*words: str) -> tuple[Any, Any]:
    given = parse(["submit", "--replace", "--in-place", *words])
    cluster: Cluster = a_cluster()
    return submit.parcel_of(cluster, given)[1], given


def running(*words: str, **status: Any) -> Document:
    """A job that was submitted with these words."""
    job: Document = deepcopy(parcel_of(*words)[0].document)
    job["metadata"] |= {"uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return job | {"status": {"attempt": 1, "bookkeeping": {"incarnations": {"default": 1}}, **status}}


def replace(world: World, *words: str) -> str:
    said = list[str]()
    parcel, given = parcel_of(*words)
    screen: Any = type("Said", (), {"print": said.append})
    in_place.replace_in_place(world.jobs, parcel, given, ("program", *submit.OF_A_PROGRAM), screen)
    return "\n".join(said)


@pytest.mark.parametrize("words", [COMMAND, ["train.py"]], ids=["the same command", "only the script"])
def test_the_supervisor_gets_the_code_before_the_job_names_it_and_the_ranks_restart_last(
    script: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    world = World(running(*COMMAND), monkeypatch, *ANSWERS)
    script.write_text("print('new')")
    parcel, _ = parcel_of(*words)
    said = replace(world, *words)
    name = parcel.code["metadata"]["name"]
    assert world.asked == ["ReplaceCode", f"own {name}", "change the job", "Apply", "release"]
    assert base64.b64encode(world.supervisor.code).decode() == parcel.code["binaryData"]["code.zip"]
    assert said.splitlines() == [
        f"train: attempt 2 runs the new code {name.removeprefix('ddpjob-code-')[:12]}, in the same pods",
        "Waiting for its first step, or a minute if it reports none; Ctrl-C leaves it to the job",
        "The new code stays",
    ]
    assert world.formers == [None], "the code of the template"


@pytest.mark.usefixtures("script")
def test_the_code_that_runs_is_named_as_the_one_to_go_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    job = running(*COMMAND)
    job["spec"]["code"] = {"configMap": "ddpjob-code-failed", "former": f"ddpjob-code-{OLD[:16]}", "revision": 4}
    world = World(job, monkeypatch, *ANSWERS)
    replace(world, *COMMAND)
    assert world.formers == [f"ddpjob-code-{OLD[:16]}"]


@pytest.mark.usefixtures("script")
def test_if_untried_code_has_finished_its_first_step_meanwhile_it_is_named_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ran when the code was prepared, and was the one to give way then."""
    tried = "1" * 64
    job = running(*COMMAND)
    before, after = f"ddpjob-code-{OLD[:16]}", f"ddpjob-code-{tried[:16]}"
    job["spec"]["code"] = {"configMap": after, "former": before, "revision": 4}
    begun = {"kind": "Begun", "attempt": 3, "former": tried}
    world = World(job, monkeypatch, *ANSWERS[:2], begun, *ANSWERS[3:])
    replace(world, *COMMAND)
    assert world.formers == [before, after]
    assert world.asked[-3:] == ["Apply", "change the job", "release"], "its ConfigMap is still needed"


@pytest.mark.usefixtures("script")
def test_code_that_has_failed_is_refused_although_supervisors_in_new_pods_do_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = parcel_of(*COMMAND)[0].code["metadata"]["annotations"][DIGEST].partition(":")[2]
    code = {"digest": OLD, "revision": 1, "failed": {"digest": digest, "revision": 1, "message": FAILED}}
    world = World(running(*COMMAND, code=code), monkeypatch, *ANSWERS)
    with pytest.raises(BadInputError) as refused:
        replace(world, *COMMAND)
    assert (str(refused.value), world.asked) == (f"train: this code {FAILED}; change it, and try again", [])


@pytest.mark.usefixtures("script")
def test_new_code_that_fails_before_its_first_step_is_an_error_that_says_what_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(running(*COMMAND), monkeypatch, *ANSWERS[:3], {"kind": "Tried", "failed": FAILED})
    with pytest.raises(BadInputError) as error:
        replace(world, *COMMAND)
    assert str(error.value) == (
        f"the new code {FAILED}. train trains on with its former code; correct the new code, and repeat this command"
    )


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("stops", ["Ctrl-C", "the connection breaks"])
def test_the_change_stays_if_the_wait_for_its_first_step_stops(monkeypatch: pytest.MonkeyPatch, stops: str) -> None:
    world = World(running(*COMMAND), monkeypatch, *ANSWERS[:3])
    if stops == "Ctrl-C":
        monkeypatch.setattr(talk.Talk, "outcome", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    said = replace(world, *COMMAND)
    assert "release" in world.asked
    assert said.endswith("look at it: ddpjob status train")


@pytest.mark.usefixtures("script")
def test_code_that_came_through_a_registry_is_replaced_by_code_in_a_config_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = running("--source-registry", "registry.example.com/team/code", *COMMAND)
    assert "image" in job["spec"]["template"]["spec"]["volumes"][1]
    assert "train: attempt 2 runs the new code" in replace(World(job, monkeypatch, *ANSWERS), *COMMAND)


@pytest.mark.usefixtures("script")
def test_the_size_of_a_job_is_not_told_by_arguments_that_need_not_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submit, "replace_in_place", lambda *_: running(*COMMAND))
    assert submit.submit(a_cluster({}), parse(["submit", "--replace", "--in-place", "train.py"])) == 0
    said = capsys.readouterr().out
    assert ("1 node x" in said, "it starts over" in said, "Watch it with: " in said) == (False, False, True), said


@pytest.mark.parametrize(
    ("words", "different"),
    [
        (["train.py", "--nodes", "4", "--env", "A=b", "--", "--lr", "0.1"], "its nodes (--nodes)."),
        (
            ["train.py", "--nodes", "2", "--env", "A=c", "--", "--lr", "0.1"],
            "its variables or packages (--env, --pip).",
        ),
        (
            ["train.py", "--", "--lr", "0.2"],
            "its nodes (--nodes), its arguments, its variables or packages (--env, --pip).",
        ),
        ([*COMMAND[:5], "--image", "other:1", *COMMAND[5:]], "its image (--image)."),
        ([*COMMAND[:5], "--pip", "einops", *COMMAND[5:]], "its variables or packages (--env, --pip),"),
        (["eval.py", "--name", "train"], "the program."),
    ],
)
def test_more_than_the_code_is_refused_and_named(
    script: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], different: str
) -> None:
    script.with_name("eval.py").write_text("print()")
    world = World(running(*COMMAND), monkeypatch)
    with pytest.raises(BadInputError) as refused:
        replace(world, *words)
    assert f"with --in-place only the code of train can change, but so would {different}" in str(refused.value)
    assert world.asked == []


def with_command(job: Document, *command: str) -> Document:
    job["spec"]["template"]["spec"]["containers"][0]["command"] = [*command]
    return job


def suspended(job: Document) -> Document:
    job["spec"]["suspend"] = True
    return job


def older(job: Document) -> Document:
    job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].pop()
    return job


def of_an_older_image(job: Document) -> Document:
    """Its supervisors were heard, and said nothing of code."""
    running = {"type": "Running", "status": "True", "reason": "AllPodsRunning", "message": ""}
    job["status"]["conditions"] = [running | {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]
    job["status"]["bookkeeping"]["supervised"] = True
    return job


REFUSED = {
    "an older image": (of_an_older_image, "its supervisors report no code, so its image is of an older release"),
    "a hold": (lambda job: with_command(job, "ddpjob-supervise", "--hold", "60"), "it is held"),
    "no supervisor": (lambda job: with_command(job, "torchrun", "train.py"), "its command does not start ddpjob-sup"),
    "preloaded modules": (
        lambda job: with_command(job, "ddpjob-supervise", "--preload", "mine", "train.py"),
        "its command imports modules before",
    ),
    "no pods": (suspended, "it is suspended, and has no pods"),
    "no archive in its pods": (older, "its code is in its image, or was sent by an older release"),
}


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("what", REFUSED)
def test_a_job_that_cannot_take_code_in_place_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    change, why = REFUSED[what]
    world = World(change(running(*COMMAND)), monkeypatch)
    with pytest.raises(BadInputError, match=f"the code of train cannot be replaced in place: {why}"):
        replace(world, *COMMAND)


@pytest.mark.parametrize(
    ("answers", "error", "done"),
    [
        (({"kind": "NotRun", "why": "no"},), "train: no", ["ReplaceCode"]),
        (ANSWERS[:1], "lost rank 0's supervisor: the connection was closed", ["ReplaceCode"]),
        (ANSWERS[:2], "train names the new code now, but its ranks may still run the old one; repeat", None),
        ((*ANSWERS[:2], {"kind": "NotRun", "why": "no"}), "repeat this command: no", None),
    ],
)
@pytest.mark.usefixtures("script")
def test_what_stops_halfway_is_said(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[Any, ...], error: str, done: list[str] | None
) -> None:
    world = World(running(*COMMAND), monkeypatch, *answers)
    with pytest.raises((BadInputError, ClusterError), match=error):
        replace(world, *COMMAND)
    assert world.asked[:1] if done is None else world.asked == done


@pytest.mark.usefixtures("script")
def test_it_belongs_to_replace() -> None:
    for words, said in (
        (["--in-place"], "--in-place belongs to --replace: give both"),
        (["--replace", "--in-place", "--dry-run"], "--in-place cannot be tried with --dry-run"),
    ):
        with pytest.raises(BadInputError, match=said):
            submit.submit(a_cluster(), parse(["submit", "train.py", *words]))
