"""A history on a volume claim is read through a pod, which shows its files by the real program, and is deleted."""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from ddpjob_operator.cli.cluster import claim_place
from ddpjob_operator.cli.main import main
from ddpjob_operator.client import ClusterError, UnreachableError, reader_pod
from ddpjob_operator.client.errors import refusal
from ddpjob_operator.history import PlaceError
from ddpjob_operator.history.places import DirectoryPlace

from tests.unit.engine.builders import a_document

from .test_from_history import keep

LINE = b"a line\n"


class Cluster:
    """A cluster in which the pod's program runs as a process that shows a directory of this machine."""

    def __init__(self, root: Path) -> None:
        self.namespace = "team"
        self.root = root
        self.calls: list[tuple[str, str]] = []
        self.pod: dict[str, Any] = {}
        self.status: dict[str, Any] = {"phase": "Running"}
        self.refused: dict[str, int] = {}
        self.asked: list[str] = []
        self.job: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def call(self, method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:  # noqa: ARG002
        self.calls.append((method, path))
        if method == "POST":
            self.pod = body
        if code := self.refused.get(f"{method} {path.split('/')[-1 if method == 'POST' else -2]}"):
            raise refusal(code, {"message": "it says no"}, "the cluster")
        if method == "POST":
            self._run(body["spec"]["containers"][0]["command"])
        if method == "DELETE":
            self.end()
        return self.job if "/ddpjobs/" in path else {"status": self.status}

    def ask_pod(self, name: str, port: int, path: str) -> dict[str, Any]:
        assert (name, port) == (self.pod["metadata"]["name"], reader_pod.PORT)
        self.asked.append(path)
        if code := self.refused.get("GET portforward"):
            raise refusal(code, {"message": "it says no"}, "the cluster")
        try:
            with urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
                return dict(json.load(answer))
        except URLError as error:
            raise UnreachableError(str(error)) from None

    def _run(self, command: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        program, root = command[2], command[3].replace("/claim", str(self.root), 1)
        self._process = subprocess.Popen([sys.executable, "-c", program, root, str(self._port)])

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def deleted(self) -> bool:
        method, path = self.calls[-1]
        return method == "DELETE" and path.endswith(f"/pods/{self.pod['metadata']['name']}")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    keep(tmp_path / "kept", 0, LINE)
    cluster = Cluster(tmp_path)
    monkeypatch.setattr(claim_place, "connect", lambda *_: cluster)
    monkeypatch.setattr(reader_pod, "LOOK_SECONDS", 0.02)
    monkeypatch.chdir(tmp_path)
    yield cluster
    cluster.end()


def call(monkeypatch: pytest.MonkeyPatch, *words: str, address: str = "pvc://data/kept") -> int:
    monkeypatch.setattr("sys.argv", ["ddpjob", *words, "--history", address, "--reader-image", "python:3"])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("logs", "digits"), "[node 0] a line\n"),
        (("status", "team/digits"), "History:      pvc://data/kept\n"),
        (("ls",), "a-uid\n"),
        (("report", "digits", "--output", "page.html"), "written: page.html"),
    ],
)
def test_a_claim_is_read_and_the_pod_is_deleted(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    shown: str,
) -> None:
    assert call(monkeypatch, *words) == 0
    assert shown in capsys.readouterr().out
    assert cluster.deleted


def test_the_pod_is_bounded_and_says_who_made_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOGNAME", "Ann_Müller")
    assert call(monkeypatch, "ls", address="pvc://1234@data/kept/") == 0
    metadata, spec = cluster.pod["metadata"], cluster.pod["spec"]
    assert metadata["name"].startswith("ddpjob-history-ann-m-ller-")
    assert metadata["annotations"]["ddpjob.dev/made-by"].startswith("Ann_Müller@")
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "ddpjob"
    assert spec["activeDeadlineSeconds"] == 900
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1234,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["volumes"] == [{"name": "claim", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}]
    (container,) = spec["containers"]
    assert container["volumeMounts"] == [{"name": "claim", "mountPath": "/claim", "readOnly": True}]
    assert container["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
    assert "a-uid" in capsys.readouterr().out


def test_a_user_without_a_name_is_named_by_number(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise random.choice((KeyError, OSError))("no such uid")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert call(monkeypatch, "logs") == 0
    assert cluster.pod["metadata"]["name"].startswith(f"ddpjob-history-{os.getuid()}-")


@pytest.mark.parametrize(
    ("words", "namespace"), [(["digits"], None), (["team/digits"], "team"), (["digits", "-n", "team"], "team")]
)
def test_the_jobs_own_namespace_image_and_pull_secrets_are_used(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, words: list[str], namespace: str | None
) -> None:
    template = {"spec": {"imagePullSecrets": [{"name": "key"}], "containers": [{"name": "trainer", "image": "mine"}]}}
    cluster.job = a_document(template=template)
    asked: list[Any] = []
    monkeypatch.setattr(claim_place, "connect", lambda *given: asked.append(given) or cluster)
    monkeypatch.setattr("sys.argv", ["ddpjob", "logs", *words, "--history", "pvc://data/kept"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, asked) == (0, [(None, None, namespace)])
    assert cluster.pod["spec"]["containers"][0]["image"] == "mine"
    assert cluster.pod["spec"]["imagePullSecrets"] == [{"name": "key"}]


@pytest.mark.parametrize("words", [("ls",), ("report", "digits", "--output", "page.html")])
def test_the_claim_is_in_the_namespace_that_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(claim_place, "connect", lambda *given: asked.append(given) or cluster)
    assert call(monkeypatch, *words, "-n", "team", "--context", "far") == 0
    assert asked == [(None, "far", "team")]


def test_the_pod_is_deleted_after_ctrl_c(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    for place in ("_wait", "_state"):  # _state is called while the pod starts.
        cluster.status = {"phase": "Pending"}
        with monkeypatch.context() as patch:
            patch.setattr(reader_pod, place, interrupted)
            assert call(patch, "ls") == 130
        assert cluster.deleted
    cluster.status = {"phase": "Running"}
    monkeypatch.setattr(claim_place.ClaimPlace, "read", interrupted)
    assert call(monkeypatch, "logs") == 130
    assert cluster.deleted


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]},
            "does not start: ErrImagePull: no such image",
        ),
        ({"phase": "Failed", "message": "evicted"}, "does not start: evicted"),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 127}}}]},
            "does not start: it ended with 127",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes have room"}]},
            "does not start: 0/3 nodes have room",
        ),
    ],
)
def test_a_pod_that_does_not_start_is_explained_and_deleted(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setattr(reader_pod, "START_SECONDS", 0.1)
    cluster.status = status
    assert call(monkeypatch, "logs") == 2
    assert said in capsys.readouterr().err
    assert cluster.deleted


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ({"GET persistentvolumeclaims": 404}, "there is no claim data in namespace team"),
        ({"POST pods": 403}, "the claim data cannot be read by a pod: the cluster refuses: it says no"),
        ({"GET portforward": 403}, "the claim data cannot be read by a pod: the cluster refuses: it says no"),
        ({"GET portforward": 503}, "does not start: the cluster cannot answer now: it says no"),
    ],
)
def test_what_the_cluster_refuses_is_said(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: dict[str, int],
    said: str,
) -> None:
    monkeypatch.setattr(reader_pod, "START_SECONDS", 0.1)
    cluster.refused = refused
    assert call(monkeypatch, "logs") == 2
    assert said in capsys.readouterr().err
    assert cluster.deleted == ("GET persistentvolumeclaims" not in refused)


@pytest.mark.parametrize(("every", "times"), [(0.0, 3), (3600.0, 0)])
def test_what_a_pod_waits_for_is_said_now_and_then(monkeypatch: pytest.MonkeyPatch, every: float, times: int) -> None:
    monkeypatch.setattr(reader_pod, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(reader_pod, "SAY_SECONDS", every)
    waits = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]}}
    answers, said = iter([waits, waits, waits, {"status": {"phase": "Running"}}]), list[str]()
    there: Any = SimpleNamespace(call=lambda *_: next(answers), ask_pod=lambda *_: {})
    reader_pod._wait(there, "/pods/it", "it", said.append)
    assert said == ["waiting for the pod it, which reads the claim: no room"] * times


def test_who_may_not_see_claims_may_read_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.refused = {"GET persistentvolumeclaims": 403}
    assert call(monkeypatch, "logs") == 0


@pytest.mark.parametrize(
    "address", ["pvc://", "pvc://a/../b", "pvc://Data", "pvc://me@data", "pvc://data/a?b", "pvc:///x"]
)
def test_an_address_that_is_none_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert call(monkeypatch, "logs", address=address) == 2
    assert "--history must be pvc://CLAIM/PATH" in capsys.readouterr().err
    assert cluster.calls == []


def test_an_image_is_needed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refused = {"GET ddpjobs": 404}
    monkeypatch.setattr("sys.argv", ["ddpjob", "logs", "digits", "--history", "pvc://data"])
    with pytest.raises(SystemExit):
        main()
    assert "--reader-image must name an image" in capsys.readouterr().err
    assert not cluster.pod


def test_the_program_reads_only_what_is_in_its_directory(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "kept"
    (root / "link").symlink_to(tmp_path)
    (root / "to-secret").symlink_to("../secret")
    os.mkfifo(root / "pipe")
    (root / "file").write_bytes(bytes(range(256)))
    where = reader_pod.Claimed("data", "kept", "python:3")
    with reader_pod.reading(cluster, where, str) as pod:  # type: ignore[arg-type]
        place, here = claim_place.ClaimPlace(cluster, pod, "pvc://data/kept"), DirectoryPlace(root)  # type: ignore[arg-type]
        for path in ("../secret", "link/secret", "/etc/passwd", "to-secret", "pipe", "link", "", ".", "a", "team"):
            assert place.read(path, 100) is None, path
            assert place.files(f"{path}/..") == place.folders(f"{path}/..") == []
        assert place.read("file", 200) == bytes(range(200))
        for path in ("", "team", "team/digits", "team/_jobs"):
            assert (place.folders(path), place.files(path)) == (here.folders(path), here.files(path))


@pytest.mark.parametrize("odd", [5, "a", "é", [], {}, True])
def test_an_answer_that_is_not_understood_is_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, odd: object
) -> None:
    place = claim_place.ClaimPlace(cluster, "pod", "pvc://data")  # type: ignore[arg-type]
    monkeypatch.setattr(cluster, "ask_pod", lambda *_: dict.fromkeys(("content", "files"), odd))
    with pytest.raises(PlaceError, match="cannot read pvc://data: the pod's answer is not understood"):
        place.read("file", 100)
    if odd != []:
        with pytest.raises(PlaceError, match="cannot read pvc://data: the pod's answer is not understood"):
            place.files("")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ClusterError("no route"), "cannot read pvc://data: no route"),
        ({"error": "Permission denied"}, "cannot read pvc://data/team/a: Permission denied"),
    ],
)
def test_why_a_claim_cannot_be_read_is_told(answer: Any, why: str) -> None:
    asked = Mock(side_effect=[answer])
    place = claim_place.ClaimPlace(SimpleNamespace(ask_pod=asked), "pod", "pvc://data")  # type: ignore[arg-type]
    with pytest.raises(PlaceError) as refused:
        place.read("team/a", 100)
    assert str(refused.value) == why


def test_a_claim_is_not_pruned(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["ddpjob", "prune", "--keep", "1", "--history", "pvc://data/kept"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, cluster.calls) == (2, [])
    assert capsys.readouterr().err == "error: pvc://data/kept is only read: prune it where it is mounted\n"
