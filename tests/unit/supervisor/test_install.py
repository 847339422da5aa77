"""What comes before pip where it installs packages in a pod; tests/local/test_installing.py has it install some."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from ddpjob_operator.view_model import masking
from ddpjob_supervisor.node import install

CARRIED, FETCHED = (
    ["python", "-Im", "ensurepip"],
    ["uv", "pip", "install", "--no-cache", "--python", "python", "pip"],
)
OURS = "https://pypi.example.com/simple"


class Image:
    """An image without pip; `has` are the commands that do what they are for."""

    def __init__(self, patch: pytest.MonkeyPatch, *has: list[str]) -> None:
        self.called: list[list[str]] = []
        self._has = has
        patch.setattr(install.importlib.util, "find_spec", lambda _: None)
        patch.setattr(subprocess, "run", self._run)

    def _run(self, words: list[str], **_: object) -> None:
        self.called.append(words)
        if words not in self._has:
            raise FileNotFoundError(words[0]) if words[0] == "uv" else subprocess.CalledProcessError(1, words)


@pytest.mark.parametrize(
    ("has", "calls"), [(CARRIED, [CARRIED]), (FETCHED, [CARRIED, FETCHED])], ids=["Python", "uv"]
)
def test_an_image_without_pip_has_one_of_its_python_or_of_uv_whose_index_is_asked(
    has: list[str], calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image(monkeypatch, has)
    monkeypatch.setattr(os, "environ", {"UV_INDEX_URL": OURS, "UV_EXTRA_INDEX_URL": "b", "PIP_EXTRA_INDEX_URL": "a"})
    install._provide_pip("python")
    assert image.called == calls
    assert (os.environ["PIP_INDEX_URL"], os.environ["PIP_EXTRA_INDEX_URL"]) == (OURS, "a")


def test_an_image_without_anything_that_installs_is_told_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Image(monkeypatch)
    monkeypatch.setattr(os, "environ", {"DDPJOB_TERMINATION_LOG": str(tmp_path / "report")})
    with pytest.raises(SystemExit, match="2"):
        install._provide_pip("python")
    report = json.loads((tmp_path / "report").read_text())
    assert report == {"cause": "ConfigError", "message": install.NO_PIP}


def test_packages_come_into_a_fresh_place_that_has_the_images_own_and_its_very_python(tmp_path: Path) -> None:
    (tmp_path / "of a former start").touch()
    python = Path(install._environment(tmp_path))
    assert python.resolve() == Path(sys.executable).resolve(), "a copy may not find its libraries"
    assert not (tmp_path / "of a former start").exists()
    assert (tmp_path / "site").resolve().name == "site-packages"
    of_image = (tmp_path / "site" / "image.pth").read_text().splitlines()
    assert of_image == [path for path in sys.path if path and Path(path).is_dir()]


def test_a_variable_that_is_not_set_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "environ", {"DDPJOB_TERMINATION_LOG": str(tmp_path / "report"), "USER_NAME": "me"})
    with pytest.raises(SystemExit, match="2"):
        install._filled_in("a @ https://${USER_NAME}:${TOKEN}@example.com/a.whl")
    report = json.loads((tmp_path / "report").read_text())
    assert "a @ https://****@example.com/a.whl: the variable TOKEN is not set" in report["message"]


def test_what_was_filled_in_is_masked_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"USER_NAME": "me", "TOKEN": "ab/cd+hush"})
    monkeypatch.setattr(install, "SECRETS", [])
    for address in ("https://${USER_NAME}:${TOKEN}@example.com/a.whl", "https://example.com/${TOKEN}/some-a.whl"):
        filled = install._filled_in(address)
        assert "ab/cd+hush" in filled
        assert install._masked(filled) in {"https://****@example.com/a.whl", "https://example.com/****/some-a.whl"}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Looking in indexes: https://me:pa%40ss@index/simple", "Looking in indexes: https://****@index/simple"),
        ("401 for me with hush-hush", "401 for me with ****"),
        ("no host hush-hush-of-links@links", "no host ****@links"),
        ("HTTP 401: Tok3n/of-mine, or of-mine", "HTTP 401: ****, or ****"),
        ("of one that is named deeper: s3cret-of-deeper", "of one that is named deeper: ****"),
        ("mirror of team", "mirror of team"),
    ],
)
def test_what_the_user_has_set_is_masked_although_pip_prints_it_in_another_way(
    line: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = {
        "PIP_INDEX_URL": "https://mirror:hush%2Dhush@index/simple",
        "PIP_FIND_LINKS": "https://index/a https://hush-hush-of-links@links",
        "UV_INDEX": "team",
        "TOKEN": "Tok3n/of-mine",
        "DEEPER": "s3cret-of-deeper",
    }
    monkeypatch.setattr(os, "environ", environ)
    monkeypatch.setattr(install, "SECRETS", [])
    (tmp_path / "requirements.txt").write_text("-r sub/more.txt\na @ https://${TOKEN}@index/a.whl\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.txt").write_text("--requirement=../requirements.txt\n--index-url https://${DEEPER}@a\n")
    install._learn_secrets(["einops", "--requirement", str(tmp_path / "requirements.txt")])
    assert install._masked(line) == shown


@pytest.mark.parametrize("password", ["pa/ss", "pa#ss", "pa?ss@x"])
def test_a_password_that_breaks_its_address_is_refused_and_not_printed(
    password: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "report")
    index = f"https://me:{password}@index"
    monkeypatch.setattr(os, "environ", {"PIP_EXTRA_INDEX_URL": index, "DDPJOB_TERMINATION_LOG": log})
    monkeypatch.setattr(install, "SECRETS", [])
    with pytest.raises(SystemExit, match="2"):
        install._learn_secrets([])
    message = "the password in PIP_EXTRA_INDEX_URL has a character that means something else there: write / as %2F"
    assert message in json.loads(Path(log).read_text())["message"]
    assert password not in capsys.readouterr().out


@pytest.mark.parametrize("index", ["https://me:pa%2Fss@index:8080/a@b", "https://[::1]:80/@a", "http://index:x"])
def test_an_address_that_is_right_is_not_refused(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PIP_INDEX_URL": index})
    monkeypatch.setattr(install, "SECRETS", [])
    install._learn_secrets([])


def test_no_end_of_a_secret_is_left_that_begins_as_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "SECRETS", ["hush-hush", "hush-hush-more"])
    assert install._masked("HTTP error 401: hush-hush-more") == "HTTP error 401: ****"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hush@example.com/simple", "https://{}@example.com/simple"),
        ("git+https://hush@example.com/team/code@v1.0", "git+https://{}@example.com/team/code@v1.0"),
        ("https://me:hu@sh@example.com", "https://{}@example.com"),
        ("https://a:hush@one.example.com, s3://b:hush@two", "https://{}@one.example.com, s3://{}@two"),
        ("https://example.com/@scope/a and me@example.com", "https://example.com/@scope/a and me@example.com"),
    ],
)
def test_a_password_in_an_address_is_masked_in_a_pod_as_on_a_page(text: str, shown: str) -> None:
    assert install._masked(text) == shown.replace("{}", "****")
    assert masking.Mask().script(text) == shown.replace("{}", masking.MASK)


@pytest.mark.parametrize(
    ("version", "arguments", "kept"),
    [("2.8.0+cu129", ["--constraint", "{}/constraints.txt"], ["torch==2.8.0+cu129\n"]), (None, [], [])],
    ids=["torch", "none"],
)
def test_pip_keeps_the_torch_of_an_image_that_has_one(
    version: str | None, arguments: list[str], kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", found)
    assert install._torch_as_it_is(str(tmp_path)) == [word.format(tmp_path) for word in arguments]
    assert [file.read_text() for file in tmp_path.iterdir()] == kept


@pytest.mark.parametrize(
    ("said", "error", "cause"),
    [
        (["Collecting a", "killed"], "killed", "ConfigError"),
        (["ERROR: one", "ERROR: two", "  of  it", "and more"], "two of it", "ConfigError"),
        (
            [
                "ERROR: a needs torch",
                "The user requested (constraint) torch==2.8.0",
                "ERROR: ResolutionImpossible: see",
            ],
            "a needs torch The image's torch==2.8.0 is not replaced",
            "ConfigError",
        ),
        (
            ["WARNING: Retrying (Retry(total=1))", "WARNING: Retrying (Retry(total=0))", "ERROR: no version of a"],
            "no version of a: WARNING: Retrying (Retry(total=0))",
            "Application",
        ),
    ],
    ids=["no error", "the last one, whole", "a constraint", "an index that may answer later"],
)
def test_the_last_error_of_pip_is_told_with_what_may_have_led_to_it(said: list[str], error: str, cause: str) -> None:
    assert install._why(said) == (f"cannot install packages: {error}", cause)


class Pip:
    """A pip that says this, and ends so; it installs what is `new`."""

    def __init__(self, patch: pytest.MonkeyPatch, said: list[str], code: int, new: set[tuple[str, str]]) -> None:
        self.called: list[list[str]] = []
        self._said, self._code = said, code
        installed = iter([{("pip", "1")}, {("pip", "1")} | new])
        patch.setattr(subprocess, "Popen", self._run)
        patch.setattr(install, "_environment", lambda directory: f"{directory}/bin/python")
        patch.setattr(install, "_provide_pip", lambda _: None)
        patch.setattr(install, "_torch_as_it_is", lambda _: ["--constraint", "torch"])
        patch.setattr(install, "_installed", lambda _: next(installed))
        patch.setattr(install, "SECRETS", [])
        patch.setattr(install.signal, "signal", lambda *_: None)

    def _run(self, words: list[str], **_: object) -> SimpleNamespace:
        self.called.append(words)
        return SimpleNamespace(stdout=[f"{line}\n" for line in self._said], wait=lambda: self._code)


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ({("einops", "1.0"), ("a", "2")}, "installed a 2, einops 1.0 in "),
        (set(), "installed nothing (the image has everything) in "),
    ],
)
def test_what_was_installed_is_told_and_not_what_was_there(
    new: set[tuple[str, str]],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(os, "environ", {"TOKEN": "hush-hush", "PYTHONPATH": f"{tmp_path}/site"})
    there = "Requirement already satisfied: torch"
    pip = Pip(monkeypatch, ["Collecting einops with hush-hush", there], 0, new)
    install.main(str(tmp_path), ["einops", "https://${TOKEN}@example.com/a.whl"])
    (words,) = pip.called
    assert words[:4] == [f"{tmp_path}/bin/python", "-m", "pip", "install"]
    assert words[-4:] == ["--constraint", "torch", "einops", "https://hush-hush@example.com/a.whl"]
    begins, collects, installed = capsys.readouterr().out.splitlines()
    assert begins.startswith("installing einops https://")
    assert collects == "Collecting einops with ****"
    assert installed.startswith(told)
    assert "PYTHONPATH" not in os.environ, "pip looks at the new place alone"


def test_why_pip_has_failed_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = str(tmp_path / "report")
    monkeypatch.setattr(
        os, "environ", {"DDPJOB_TERMINATION_LOG": log, "PIP_FIND_LINKS": "https://me:hush-hush@index"}
    )
    Pip(monkeypatch, ["ERROR: no version of a, says me with hush-hush"], 1, set())
    with pytest.raises(SystemExit, match="2"):
        install.main(str(tmp_path), ["a"])
    assert "no version of a, says me with ****" in (tmp_path / "report").read_text()


def test_a_path_of_the_image_that_would_be_lost_is_told_with_what_keeps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", {"DDPJOB_TERMINATION_LOG": str(tmp_path / "report"), "PYTHONPATH": "/app"})
    pip = Pip(monkeypatch, [], 0, set())
    with pytest.raises(SystemExit, match="2"):
        install.main(str(tmp_path), ["a"])
    assert "to keep it: --env PYTHONPATH=/app" in (tmp_path / "report").read_text()
    assert not pip.called


def test_a_container_runs_it_as_text_and_without_the_modules_of_the_program_that_it_prepares(tmp_path: Path) -> None:
    (tmp_path / "venv.py").write_text("raise SystemExit('a module of the program')\n", encoding="utf-8")
    report = tmp_path / "report"
    ended = subprocess.run(
        [sys.executable, "-c", Path(install.__file__).read_text(encoding="utf-8"), str(tmp_path / "there"), "einops"],
        cwd=tmp_path,
        env={"DDPJOB_TERMINATION_LOG": str(report), "PYTHONPATH": "/app"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (2, "")
    assert "to keep it: --env PYTHONPATH=/app" in report.read_text(encoding="utf-8")
