"""Which cluster, user and namespace are meant: those that kubectl would take."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import kubeconfig
from ddpjob_operator.client.kubeconfig import connect, kubeconfigs


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

    monkeypatch.setattr(kubeconfig.KubeConfigLoader, "load_and_set", no_room)
    with pytest.raises(BadInputError, match=r"No space left on device; set TMPDIR to a directory of yours"):
        connect(file)


def test_many_submits_share_the_connections_until_the_file_is_written_again(home: Path) -> None:
    file = config(home / "kube", "a", "a")
    first = connect(file)
    assert connect(file, namespace="other").api is first.api
    assert connect(config(file, "b", "b")).api is not first.api
    assert connect(file).context == "b"
