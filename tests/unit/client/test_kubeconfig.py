"""Which cluster, user and namespace are meant: those that kubectl would take."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import Cluster, kubeconfig
from ddpjob_operator.client.kubeconfig import connect, kubeconfigs
from kubernetes.config.kube_config import KubeConfigLoader


def config(file: Path, name: str, current: str | None = None, **context: Any) -> Path:
    """A file with one cluster, one user and one context of that name."""
    content = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example"}}],
        "users": [{"name": name, "user": {"token": f"token-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
        **({"current-context": current} if current else {}),
    }
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("namespace", "of_context", "used"),
    [("mine", {"namespace": "team"}, "mine"), (None, {"namespace": "team"}, "team"), (None, {}, "default")],
)
def test_a_namespace_that_is_named_comes_before_the_contexts_and_that_before_default(
    home: Path, namespace: str | None, of_context: dict[str, str], used: str
) -> None:
    cluster = connect(config(home / "kube", "a", "a", **of_context), namespace=namespace)
    assert (cluster.context, cluster.namespace) == ("a", used)


@pytest.mark.parametrize(("context", "chosen"), [(None, "a"), ("a", "a"), ("b", "b")])
def test_files_are_read_together_and_the_first_names_the_current_context(
    home: Path, monkeypatch: pytest.MonkeyPatch, context: str | None, chosen: str
) -> None:
    files = [config(home / "one", "a", "a"), home / "none", config(home / "two", "b", "b")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["", *map(str, files)]))
    assert kubeconfigs() == [files[0], files[2]]
    cluster = connect(context=context)
    settings = cluster.api.configuration
    assert (cluster.context, settings.host) == (chosen, f"https://{chosen}.example")
    assert settings.get_api_key_with_prefix("BearerToken") == f"Bearer token-{chosen}"


def test_what_is_given_comes_before_the_variable_and_that_before_kubectls_own_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".kube").mkdir()
    config(home / ".kube" / "config", "own", "own")
    assert connect().context == "own"
    monkeypatch.setenv("KUBECONFIG", str(config(home / "named", "named", "named")))
    assert connect().context == "named"
    assert connect(config(home / "given", "given", "given")).context == "given"


def test_a_request_is_tried_once_and_logs_of_many_pods_are_followed_at_once(home: Path) -> None:
    settings = connect(config(home / "kube", "a", "a")).api.configuration
    assert settings.retries is False
    assert settings.connection_pool_maxsize >= 100


@pytest.mark.parametrize(
    ("namespace", "own", "used"), [(None, "team\n", "team"), ("mine", "team\n", "mine"), (None, None, "default")]
)
def test_in_a_pod_without_a_kubeconfig_its_own_cluster_is_meant(
    home: Path, monkeypatch: pytest.MonkeyPatch, namespace: str | None, own: str | None, used: str
) -> None:
    monkeypatch.setattr(kubeconfig, "load_incluster_config", lambda _: None)
    monkeypatch.setattr(kubeconfig, "IN_CLUSTER_NAMESPACE", home / "namespace")
    if own:
        (home / "namespace").write_text(own)
    cluster = connect(namespace=namespace)
    assert (cluster.context, cluster.namespace) == ("in-cluster", used)


def test_a_file_that_cannot_be_read_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(home / "kube", "a", "a")

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(KubeConfigLoader, "load_and_set", no_room)
    with pytest.raises(BadInputError, match=r"No space left on device; set TMPDIR to a directory of yours"):
        connect(file)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass, which stands still otherwise."""
    now = 0.0

    def pass_by(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(kubeconfig, "time", SimpleNamespace(monotonic=lambda: now))
    return pass_by


def with_user(file: Path, user: dict[str, Any]) -> Path:
    """The file of `config`, with another user."""
    content = yaml.safe_load(config(file, "a", "a").read_text(encoding="utf-8"))
    content["users"][0]["user"] = user
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def token_of(cluster: Cluster) -> str:
    """The token that the next request sends."""
    return str(cluster.api.configuration.auth_settings()["BearerToken"]["value"])


def plugin(home: Path, **status: str) -> dict[str, Any]:
    """A user whose plugin prints what `home/token` has, and notes each run in `home/runs`."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    printed = json.dumps({**credential, "status": {**status, "token": "TOKEN"}})
    script = f"echo >> {home}/runs; sed s/TOKEN/$(cat {home}/token)/ <<'END'\n{printed}\nEND"
    return {"exec": {"apiVersion": credential["apiVersion"], "command": "sh", "args": ["-c", script]}}


@pytest.mark.parametrize("kind", ["file", "plugin"])
def test_a_client_that_is_kept_for_hours_takes_a_new_token_from_its_file_or_plugin(
    home: Path, later: Callable[[float], None], kind: str
) -> None:
    (home / "token").write_text("first")
    file = with_user(home / "kube", {"tokenFile": str(home / "token")} if kind == "file" else plugin(home))
    kept = connect(file)
    for token in ("second", "third"):
        (home / "token").write_text(token)
        assert token_of(kept) != f"Bearer {token}", "it is not read for each request"
        later(kubeconfig.CREDENTIALS_SECONDS)
        assert token_of(kept) == f"Bearer {token}"
    assert connect(file).api is kept.api


def test_a_token_file_that_is_gone_for_a_while_leaves_the_last_token(
    home: Path, later: Callable[[float], None]
) -> None:
    (home / "token").write_text("first")
    kept = connect(with_user(home / "kube", {"tokenFile": str(home / "token")}))
    (home / "token").unlink()
    later(kubeconfig.CREDENTIALS_SECONDS)
    assert token_of(kept) == "Bearer first"
    (home / "token").write_text("second")
    later(kubeconfig.CREDENTIALS_SECONDS)
    assert token_of(kept) == "Bearer second"


def test_a_plugin_that_says_how_long_its_token_is_valid_is_not_run_before(
    home: Path, later: Callable[[float], None]
) -> None:
    (home / "token").write_text("first")
    kept = connect(with_user(home / "kube", plugin(home, expirationTimestamp="2100-01-01T00:00:00Z")))
    later(kubeconfig.CREDENTIALS_SECONDS)
    assert token_of(kept) == "Bearer first"
    assert (home / "runs").read_text() == "\n"


def test_new_certificates_reach_the_jobs_that_are_submitted_later(home: Path, later: Callable[[float], None]) -> None:
    file = config(home / "kube", "a", "a")
    first = connect(file)
    later(kubeconfig.CLIENT_SECONDS)
    assert connect(file).api is not first.api


def test_many_submits_share_the_connections_until_the_file_is_written_again(
    home: Path, later: Callable[[float], None]
) -> None:
    file = config(home / "kube", "a", "a")
    first = connect(file)
    later(kubeconfig.CREDENTIALS_SECONDS)
    assert connect(file, namespace="other").api is first.api
    assert connect(config(file, "b", "b")).api is not first.api
    assert connect(file).context == "b"
