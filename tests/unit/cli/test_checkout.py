"""Which commit a job is submitted from, and that git runs no program of the repository."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from ddpjob_operator.api.git_state import BRANCH, COMMIT, DIRTY
from ddpjob_operator.cli import checkout
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.checkout import git_state, with_git_state
from ddpjob_operator.cli.commands import call


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgSign=false")
    done = subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, on the branch main."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = tmp_path / "repository"
    (folder / "within").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "train.py").write_text("print(1)\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def test_a_clean_checkout_a_changed_one_and_one_without_a_branch(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    for folder in (repository, repository / "within"):
        state = git_state(folder)
        assert state is not None
        assert (state.commit, state.branch, state.dirty) == (commit, "main", False)
    (repository / "untracked.py").touch()
    assert not getattr(git_state(repository), "dirty", None)
    (repository / "train.py").write_text("print(2)\n", encoding="utf-8")
    assert getattr(git_state(repository), "dirty", None)
    git(repository, "checkout", "--quiet", "--force", "--detach")
    git(repository, "add", "untracked.py")
    state = git_state(repository)
    assert state is not None
    assert (state.commit, state.branch, state.dirty) == (commit, "", True)


@pytest.mark.parametrize("target", ["train.py", "within/../train.py", "job.yaml"])
def test_a_run_on_this_machine_records_its_commit_too(
    target: str, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(parse(["run", "--dry-run", "-o", "yaml", str(repository / "train.py")]))
    (repository / "job.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    monkeypatch.chdir(repository.parent)
    assert call(parse(["run", "--dry-run", "-o", "json", str(repository / target)])) == 0
    annotations = json.loads(capsys.readouterr().out)["metadata"]["annotations"]
    assert annotations[COMMIT] == git(repository, "rev-parse", "HEAD")
    assert (annotations[BRANCH], annotations[DIRTY]) == ("main", "false")


def test_variables_that_lead_git_elsewhere_are_ignored(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert git_state(repository) is not None


def test_without_a_checkout_a_commit_or_git_nothing_is_known(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git_state(tmp_path) is None
    assert git_state(tmp_path / "nowhere") is None
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "--quiet")
    assert git_state(tmp_path / "new") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(repository) is None


def test_a_git_that_does_not_answer_is_not_waited_for(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(checkout, "SECONDS", 0.05)
    assert git_state(repository) is None


EVIL = {
    "a monitor of the file system": ("core.fsmonitor",),
    "a filter": ("filter.evil.clean", "filter.evil.smudge"),
    "a filter that is a process": ("filter.evil.process",),
    "a filter with dots": ("filter.e.v.il.clean",),
    "a pager": ("core.pager", "pager.status"),
    "a diff": ("diff.external",),
}


@pytest.mark.parametrize("keys", EVIL.values(), ids=EVIL)
def test_nothing_that_a_repository_names_is_run(keys: tuple[str, ...], repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for key in keys:
        git(repository, "config", key, f"touch {ran} #")
    git(repository, "config", "filter.evil.required", "true")
    name = keys[0].removeprefix("filter.").rpartition(".")[0]
    (repository / ".gitattributes").write_text(f"* filter={name}\n", encoding="utf-8")
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
    hook.chmod(0o755)
    (repository / "train.py").write_text("print(3)\n", encoding="utf-8")
    state = git_state(repository)
    assert state is not None
    assert state.dirty
    assert not ran.exists()


def test_where_a_filter_cannot_be_turned_off_nothing_is_known(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "--file", ".git/config", "filter.a=b.clean", f"touch {ran} #")
    (repository / ".gitattributes").write_text("* filter=a=b\n", encoding="utf-8")
    (repository / "train.py").write_text("print(3)\n", encoding="utf-8")
    assert git_state(repository) is None
    assert not ran.exists()


def test_another_submission_replaces_the_commit(repository: Path) -> None:
    state = git_state(repository)
    old = {"metadata": {"annotations": {COMMIT: "old", BRANCH: "old", DIRTY: "true", "example.com/a": "b"}}}
    assert with_git_state(old, None) is old
    assert state is not None
    kept = with_git_state(old, state)["metadata"]["annotations"]
    assert kept == {**state.annotations, "example.com/a": "b"}
