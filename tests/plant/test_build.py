import subprocess
import sys
from pathlib import Path

import pytest

from tests.plant import PlantError, build
from tests.plant.binaries import Binary
from tests.plant.needs import demand
from tests.support.waiting import patience


def test_a_second_build_has_nothing_to_do() -> None:
    demand("fake")
    assert not build.missing(), "run make plant"
    build_again = "from tests.plant import build; build.build()"
    command = [sys.executable, "-c", build_again]
    again = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=True)
    assert again.stdout == ""


def test_a_build_that_fails_says_why_and_leaves_nothing_that_looks_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demand("api")
    module = tmp_path / "modules" / "broken"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module broken\n\ngo 1.26\n")
    (module / "go.sum").touch()
    (module / "main.go").write_text("package main\n\nfunc main() { missing() }\n")
    monkeypatch.setattr(build, "MODULES", tmp_path / "modules")
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(build, "GO_CACHES", tmp_path / "cache" / "go")
    monkeypatch.setattr(build, "BINARIES", (Binary("broken", "broken", "."),))
    with pytest.raises(PlantError, match="building broken failed") as failed:
        build.build()
    assert "undefined: missing" in str(failed.value)
    assert [binary.name for binary in build.missing()] == ["broken"]


def test_a_binary_that_is_not_built_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    with pytest.raises(PlantError, match="run make plant"):
        build.path("kubectl")
