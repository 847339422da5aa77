"""Whether a command is for this machine or for a cluster."""

import threading
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli import cluster, target
from ddpjob_operator.cli.arguments import parser
from ddpjob_operator.cli.commands import each
from ddpjob_operator.cli.target import on_cluster
from ddpjob_operator.local import RunDirectory, register


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where a kubeconfig can be; there is none yet."""
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("DDPJOB_RUN_DIR", str(tmp_path / "runs"))
    return file


def run_of(name: str, tmp_path: Path) -> None:
    (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / name / "job.json").touch()


def asked(*arguments: str) -> bool:
    (given,) = each(parser().parse_args(arguments))
    return on_cluster(given)


def test_without_run_or_kubeconfig_it_is_this_machine(kubeconfig: Path) -> None:
    assert not kubeconfig.exists()
    assert asked("status", "digits") is False


def test_without_a_run_of_that_name_it_is_the_cluster_of_the_kubeconfig(kubeconfig: Path, tmp_path: Path) -> None:
    kubeconfig.touch()
    run_of("mine", tmp_path)
    assert asked("status", "digits") is True
    assert asked("logs", "digits") is True


NAMED = [
    (command, "digits")
    for command in ("status", "logs -f", "suspend", "resume", "scale --nodes 3", "cancel", "delete")
]


@pytest.mark.parametrize(("command", "name"), [*NAMED, ("status", None), ("logs -f", None)])
def test_where_both_have_it_a_flag_is_asked_for(
    command: str, name: str | None, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*command.split(), *filter(None, [name])]
    run_of("digits", tmp_path)
    kubeconfig.touch()
    there = {"digits": "namespace team of the cluster of context here", None: "namespace team"}
    monkeypatch.setattr(cluster, "location_of_job", there.__getitem__)
    both = {"digits": "digits is a run on", None: "there are runs on"}[name]
    only_there = arguments[0] in {"suspend", "resume", "scale", "cancel"}
    which = "for that one add --cluster" if only_there else "say which, with --local or --cluster"
    message = f"{both} this machine ({tmp_path}/runs) and in {there[name]}: {which}"
    with pytest.raises(BadInputError) as refused:
        asked(*arguments)
    assert str(refused.value) == message
    assert asked(*arguments, "--cluster") is True
    if not only_there:
        assert asked(*arguments, "--local") is False


def test_where_both_have_it_the_directory_of_the_run_is_named(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run_of("digits", tmp_path / "elsewhere")
    register(RunDirectory(tmp_path / "elsewhere" / "runs" / "digits"))
    kubeconfig.touch()
    monkeypatch.setattr(cluster, "location_of_job", lambda _: "namespace team")
    with pytest.raises(BadInputError, match=rf"this machine \({tmp_path}/elsewhere/runs\) and in namespace team"):
        asked("status", "digits")


def test_where_only_this_machine_has_it_nothing_is_asked_for_or_said(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of("digits", tmp_path)
    assert asked("status", "digits") is False
    kubeconfig.touch()
    monkeypatch.setattr(cluster, "location_of_job", {"digits": None, None: None}.__getitem__)
    assert [asked("status", "digits"), asked("status"), asked("delete", "digits")] == [False] * 3
    assert capsys.readouterr().err == ""


def test_a_kubeconfig_that_names_no_cluster_is_nobody_to_ask(kubeconfig: Path, tmp_path: Path) -> None:
    run_of("digits", tmp_path)
    kubeconfig.touch()
    assert asked("status", "digits") is False


def test_a_cluster_that_does_not_answer_keeps_nobody_from_a_run_of_this_machine(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of("digits", tmp_path)
    kubeconfig.touch()
    monkeypatch.setattr(target, "ANSWER_SECONDS", 0)
    done = threading.Event()
    monkeypatch.setattr(cluster, "location_of_job", lambda _: done.wait())
    assert asked("status", "digits") is False
    done.set()
    said = f"On this machine ({tmp_path}/runs); cannot tell whether the cluster has it too: it has not answered"
    assert capsys.readouterr().err.startswith(said)


def test_in_a_pod_a_change_is_for_its_cluster_unless_there_is_a_run_of_that_name(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not kubeconfig.exists()
    assert asked("suspend", "digits") is False
    monkeypatch.setattr(target, "SERVICE_ACCOUNT", tmp_path / "token")
    (tmp_path / "token").touch()
    assert asked("suspend", "digits") is True
    assert asked("status", "digits") is False
    run_of("digits", tmp_path)
    assert asked("suspend", "digits") is False
    assert asked("scale", "digits", "--nodes", "3") is False
    assert asked("delete", "digits") is False
    assert asked("checkpoint", "other") is True


@pytest.mark.parametrize(
    "flags", [("-n", "team"), ("--context", "here"), ("--kubeconfig", "file"), ("-A",), ("--cluster",)]
)
@pytest.mark.usefixtures("kubeconfig")
def test_a_flag_for_a_cluster_means_the_cluster(flags: tuple[str, ...], tmp_path: Path) -> None:
    run_of("digits", tmp_path)
    assert asked("status", *flags) is True


def test_a_run_directory_means_this_machine(kubeconfig: Path) -> None:
    kubeconfig.touch()
    assert asked("status", "digits", "--run-dir", "elsewhere") is False
    assert asked("status", "digits", "--local") is False


@pytest.mark.usefixtures("kubeconfig")
def test_flags_for_both_are_refused() -> None:
    with pytest.raises(BadInputError, match="--run-dir is for runs on this machine and --namespace for a cluster"):
        asked("logs", "digits", "--run-dir", "runs", "-n", "team")


@pytest.mark.usefixtures("kubeconfig")
def test_under_kubectl_it_is_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of("digits", tmp_path)
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubectl-ddpjob"])
    assert asked("status", "digits") is True
