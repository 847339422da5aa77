"""`ddpjob.submit` of a function, with a cluster that is made up: what is sent, and what is printed of it."""

import base64
import importlib
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import ddpjob
import pytest
from ddpjob_operator.cli.packed import PackedProgram
from ddpjob_operator.sdk import submitting
from kubernetes.client.api_client import ApiClient

from tests.unit.client.api import JOBS

from .calling import result_of_call
from .test_sdk import Accepting

MODEL = "KEY = 'none'\ndef fit(lr):\n    return lr * 2\n"
TRAIN = "from mymodel import fit\ndef my_train(lr, names=()):\n    return {'fit': fit(lr), 'names': names}\n"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a cluster is asked that accepts everything. The folder has two modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mymodel.py").write_text(MODEL, encoding="utf-8")
    Path("functions_of_mine.py").write_text(TRAIN, encoding="utf-8")
    for name in ("mymodel", "functions_of_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    cluster = Accepting(ApiClient(), "here", "team")
    monkeypatch.setattr(submitting, "connect", lambda *_: cluster)
    return cluster.asked


def my_train() -> Any:
    return importlib.import_module("functions_of_mine").my_train


def bodies(asked: list[Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The job and the files that were sent."""
    job = [body for method, path, body, _ in asked if (method, path) == ("POST", JOBS)][-1]
    code = next(body for method, _, body, _ in asked if method == "POST" and body["kind"] == "ConfigMap")
    packed = zipfile.ZipFile(io.BytesIO(base64.b64decode(code["binaryData"]["code.zip"])))
    return job, {name: packed.read(name) for name in packed.namelist()}


def test_a_function_is_sent_with_its_modules_and_its_arguments(
    asked: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = ddpjob.submit(my_train(), {"lr": 0.5, "names": ("a", Path("/b"))}, nodes=2, start_method="cold")
    job, files = bodies(asked)
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    assert (handle.name, job["spec"]["nodes"]) == ("my-train", 2)
    assert trainer["command"] == ["ddpjob-supervise", "--start-method", "cold", "ddpjob_call.py"]
    assert "args" not in trainer, "arguments stand on no command line"
    assert files.keys() == {"ddpjob_arguments.json", "ddpjob_call.py", "functions_of_mine.py", "mymodel.py"}
    assert json.loads(files["ddpjob_arguments.json"]) == {"lr": 0.5, "names": ["a", "/b"]}
    printed = capsys.readouterr().out
    assert "packed 4 files" in printed
    assert "which is not sent" not in printed
    result = result_of_call(PackedProgram(files, "ddpjob_call.py", ""), tmp_path / "pod", monkeypatch)
    assert result == {"fit": 1.0, "names": ["a", "/b"]}


def test_with_a_folder_all_of_it_is_sent(asked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1\n")
    ddpjob.submit(my_train(), {"lr": 1}, source=tmp_path, quiet=True)
    _, files = bodies(asked)
    assert files.keys() == {
        *("ddpjob_arguments.json", "ddpjob_call.py", "functions_of_mine.py", "mymodel.py"),
        "data.csv",
    }


def test_a_secret_in_a_module_or_in_an_argument_is_not_sent(asked: list[Any]) -> None:
    key = "AKIA" + "Z" * 16
    with pytest.raises(ddpjob.BadInputError, match=r"ddpjob_arguments\.json, line 1: an AWS access key"):
        ddpjob.submit(my_train(), {"lr": 1, "names": [key]})
    Path("mymodel.py").write_text(MODEL.replace("none", key), encoding="utf-8")
    with pytest.raises(ddpjob.BadInputError, match=r"mymodel\.py, line 1: an AWS access key"):
        ddpjob.submit(my_train(), {"lr": 1})
    assert not [method for method, *_ in asked if method == "POST"]
    ddpjob.submit(my_train(), {"lr": 1}, include=["mymodel.py"], quiet=True)
    assert "mymodel.py" in bodies(asked)[1]


def test_a_lambda_is_one_error_and_nothing_is_sent(asked: list[Any]) -> None:
    with pytest.raises(ddpjob.BadInputError, match="a lambda cannot be sent"):
        ddpjob.submit(lambda: 1)
    assert asked == []
