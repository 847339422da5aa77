"""`ddpjob submit --source-registry`: larger code goes through a registry of images, and pods unpack it as before."""

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.client.image_registry import CodeImage, Registry

from tests.unit.client.api import a_cluster, jobs_with

submit = importlib.import_module("ddpjob_operator.cli.cluster.submit")
THERE = ["--source", ".", "--source-registry", "registry.example.com/team/code"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with more code than a ConfigMap holds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    Path("train.py").write_text("print()")
    Path("large.bin").write_bytes(os.urandom(3 << 20))
    return tmp_path


def parcel_of(*words: str) -> tuple[Any, Any]:
    given = parse(["submit", "train.py", "--name", "train", *words])
    return submit.parcel_of(a_cluster(), given)[1], given


@pytest.mark.usefixtures("folder")
def test_pods_mount_the_image_by_its_digest_where_they_would_mount_the_config_map() -> None:
    parcel, _ = parcel_of(*THERE)
    pod = parcel.document["spec"]["template"]["spec"]
    (archive,) = (volume for volume in pod["volumes"] if volume["name"] == "code-archive")
    assert archive["image"] == {
        "reference": f"registry.example.com/team/code@{parcel.image.digest}",
        "pullPolicy": "IfNotPresent",
    }
    assert {"name": "code-archive", "mountPath": "/ddpjob/archive", "readOnly": True} in (
        pod["initContainers"][0]["volumeMounts"]
    )
    assert parcel.code is None
    assert parcel.document["metadata"]["annotations"]["ddpjob.dev/code-digest"].startswith("sha256:")
    assert yaml.safe_load(submit.printed(parcel, "yaml"))["kind"] == "DDPJob"


@pytest.mark.usefixtures("folder")
def test_it_is_pushed_before_the_job_is_created_and_not_by_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr(Registry, "push", lambda _, image: done.append(f"push {image.tag}"))
    jobs = jobs_with(create=lambda _, *, dry_run=False: done.append("check" if dry_run else "create") or {})
    parcel, given = parcel_of(*THERE, "--dry-run")
    submit.create_or_replace(jobs, parcel, given, None)
    parcel, given = parcel_of(*THERE)
    submit.create_or_replace(jobs, parcel, given, None)
    assert isinstance(parcel.image, CodeImage)
    assert done == ["check", f"push {parcel.image.tag}", "create"]


@pytest.mark.usefixtures("folder")
def test_without_a_registry_the_error_names_it_as_a_remedy() -> None:
    with pytest.raises(BadInputError, match=r"large\.bin \(3.*send it through a registry \(--source-registry "):
        parcel_of("--source", ".")


def test_a_registry_takes_64_mib(folder: Path) -> None:
    (folder / "larger.bin").write_bytes(os.urandom(70 << 20))
    with pytest.raises(BadInputError, match=r"a job can carry only 64 MiB; the largest files: larger\.bin \(70"):
        parcel_of(*THERE)
