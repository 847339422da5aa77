"""Real nodes run the images of this clone."""

from pathlib import Path

import pytest

from tests.plant.errors import PlantError
from tests.plant.images import build


def test_images_of_other_sources_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "operator" / "loop.py"
    source.parent.mkdir()
    source.write_text("watch()")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "STORE", tmp_path / "cache" / "images")
    monkeypatch.setattr(build, "MADE_OF", tmp_path / "cache" / "images-made-of")
    monkeypatch.setattr(build, "_build_all", lambda: None)
    with pytest.raises(PlantError, match="run make plant"):
        build.check_images()
    build.build_images()
    build.check_images()
    source.with_suffix(".pyc").write_text("compiled")
    build.check_images()
    source.write_text("watch(namespace)")
    with pytest.raises(PlantError, match=f"not built from {tmp_path} as it is now"):
        build.check_images()
