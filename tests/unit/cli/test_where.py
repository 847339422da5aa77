"""Whether a command is for this machine or for a cluster."""

from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.arguments import parser
from ddpjob_operator.cli.where import on_cluster


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
    return on_cluster(parser().parse_args(arguments))


def test_without_run_or_kubeconfig_it_is_this_machine(kubeconfig: Path) -> None:
    assert not kubeconfig.exists()
    assert asked("status", "digits") is False


def test_without_a_run_of_that_name_it_is_the_cluster_of_the_kubeconfig(kubeconfig: Path, tmp_path: Path) -> None:
    kubeconfig.touch()
    run_of("mine", tmp_path)
    assert asked("status", "digits") is True
    assert asked("logs", "digits") is True


def test_a_run_of_that_name_goes_first_and_that_is_said(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of("digits", tmp_path)
    assert asked("status", "digits") is False
    assert capsys.readouterr().err == ""
    kubeconfig.touch()
    assert asked("status", "digits") is False
    assert asked("status") is False
    assert capsys.readouterr().err == f"On this machine ({tmp_path}/runs); for the cluster add --namespace\n" * 2


def test_a_change_is_for_a_cluster_unless_there_is_a_run_of_that_name(kubeconfig: Path, tmp_path: Path) -> None:
    assert not kubeconfig.exists()
    assert asked("suspend", "digits") is True, "there it is told that no cluster is named"
    run_of("digits", tmp_path)
    assert asked("suspend", "digits") is False
    assert asked("scale", "digits", "--nodes", "3") is False
    assert asked("resume", "other") is True


@pytest.mark.parametrize("flags", [("-n", "team"), ("--context", "here"), ("--kubeconfig", "file"), ("-A",)])
@pytest.mark.usefixtures("kubeconfig")
def test_a_flag_for_a_cluster_means_the_cluster(flags: tuple[str, ...], tmp_path: Path) -> None:
    run_of("digits", tmp_path)
    assert asked("status", *flags) is True


def test_a_run_directory_means_this_machine(kubeconfig: Path) -> None:
    kubeconfig.touch()
    assert asked("status", "digits", "--run-dir", "elsewhere") is False


@pytest.mark.usefixtures("kubeconfig")
def test_flags_for_both_are_refused() -> None:
    with pytest.raises(BadInputError, match="--run-dir is for runs of this machine and --namespace for a cluster"):
        asked("logs", "digits", "--run-dir", "runs", "-n", "team")


@pytest.mark.usefixtures("kubeconfig")
def test_under_kubectl_it_is_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of("digits", tmp_path)
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubectl-ddpjob"])
    assert asked("status", "digits") is True
