"""`ddpjob rm`, and `ddpjob delete` of a run on this machine."""

from pathlib import Path

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import Lock, RunDirectory, register, registered


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that is registered, has a checkpoint, and does not run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "ddpjob-runs" / "train")
    run.create()
    run.job_file.write_text("{}")
    (run.volumes / "checkpoints").mkdir()
    (run.volumes / "checkpoints" / "last.pt").touch()
    (run.pods / "train-0").mkdir()
    register(run)
    return run


@pytest.mark.parametrize("command", ["rm", "delete", "delete --local"])
def test_a_run_goes_with_its_checkpoints_and_its_name_is_free(
    command: str, train: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(parse([*command.split(), "train"])) == 0
    assert capsys.readouterr().out == f"train: removed {train.root}, with the logs and checkpoints in it\n"
    assert [train.root.exists(), train.root.parent.exists(), [*registered()]] == [False, True, []]
    assert not [*Path("state/ddpjob/runs").iterdir()]


@pytest.mark.parametrize("lock", ["lock", "pods/train-0/lock"])
def test_what_runs_is_not_removed(lock: str, train: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    held = Lock(train.root / lock)
    assert held.acquire()
    assert call(parse(["rm", "train"])) == 2
    assert capsys.readouterr().err == "error: train is running; stop it first, with: ddpjob stop train\n"
    held.release()
    assert (train.volumes / "checkpoints" / "last.pt").exists()


def test_what_links_lead_to_stays(train: RunDirectory, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "model.pt").touch()
    (train.root / "a-link").symlink_to(mine)
    (train.volumes / "a-link").symlink_to(mine)
    assert call(parse(["rm", "train"])) == 0
    assert (train.root.exists(), (mine / "model.pt").exists()) == (False, True)


def test_a_directory_that_is_a_link_is_left_to_whoever_made_it(
    train: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.root.rename(tmp_path / "scratch")
    train.root.symlink_to(tmp_path / "scratch")
    assert call(parse(["rm", "train"])) == 2
    said = f"is a link to {tmp_path}/scratch; remove its target, then the link\n"
    assert capsys.readouterr().err.endswith(said)
    assert (tmp_path / "scratch" / "job.json").exists()


def test_a_directory_in_which_nothing_has_run_is_not_removed(
    train: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    train.lock_file.unlink()
    assert call(parse(["rm", "train"])) == 2
    assert capsys.readouterr().err.endswith("train is not a run directory: nothing has run in it\n")
    assert train.job_file.exists()


def test_what_was_not_removed_to_its_end_is_removed_the_next_time(
    train: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("shutil.rmtree", _refused)
        assert call(parse(["rm", "train"])) == 2
    assert capsys.readouterr().err == "error: cannot remove /x: Permission denied; other parts of train may be gone\n"
    assert call(parse(["rm", "train"])) == 0
    assert not train.root.exists()


def test_a_name_that_nobody_has_is_an_error(train: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(parse(["rm", "trian"])) == 2
    assert capsys.readouterr().err == f"error: no run named trian under ddpjob-runs; there is {train.root.name}\n"


@pytest.mark.parametrize(
    "command",
    ["rm", "delete", "stop", "status", "status -w", "status --stacks", "logs", "report", "run --resume"],
)
def test_no_command_finds_a_run_outside_the_directory_that_is_named(
    command: str, train: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for place, message in {
        "empty": "no run named train under empty",
        "nowhere": "--run-dir nowhere: there is no such directory",
    }.items():
        assert call(parse([*command.split(), "train", "--run-dir", place])) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
    assert train.job_file.exists()


def test_runs_outside_the_directory_that_is_named_are_not_listed(
    train: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert [call(parse([command, "--run-dir", "empty"])) for command in ("ls", "status")] == [0, 2]
    said = capsys.readouterr()
    assert (train.root.name in said.out, said.err) == (
        False,
        "error: no runs under empty; start one with: ddpjob run FILE\n",
    )


@pytest.mark.parametrize("command", ["rm", "delete --local"])
def test_of_several_names_each_has_its_turn_whatever_becomes_of_the_others(
    command: str, train: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = RunDirectory(tmp_path / "ddpjob-runs" / "other")
    other.create()
    other.job_file.write_text("{}")
    assert call(parse([*command.split(), "trian", "train", "other"])) == 1
    said = capsys.readouterr()
    assert said.err == "error: no run named trian under ddpjob-runs; there is other, train\n"
    assert [line.partition(" ")[0] for line in said.out.splitlines()] == ["train:", "other:"]
    assert not train.root.exists()
    assert not other.root.exists()


def test_a_name_that_is_given_twice_has_one_turn(train: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(parse(["rm", "train", "train"])) == 0
    assert not train.root.exists()
    assert capsys.readouterr().out.count("train: removed") == 1


def test_a_run_may_be_called_what_kubectl_calls_a_kind() -> None:
    assert parse(["rm", "job", "train"]).names == ["job", "train"]


def _refused(_: Path) -> None:
    raise PermissionError(13, "Permission denied", "/x")
