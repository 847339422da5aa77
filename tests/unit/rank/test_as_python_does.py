"""A program finds what it would find if Python had been started with it: its arguments, its directory, its name."""

import sys
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.running.program import program_of

SEEN = "import sys\nfrom pathlib import Path\nimport beside\n"
SEEN += "Path('seen').write_text(repr((sys.argv, sys.path[0], __name__, __file__)))\n"


def test_a_script_that_is_not_there_is_told_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^there is no script train.py in {tmp_path}$"):
        program_of(["train.py"]).check()
    program_of(["-m", "train"]).check()  # Only the import tells where a module is.
    (tmp_path / "train.py").touch()
    program_of(["train.py"]).check()


@pytest.mark.parametrize(
    ("words", "is_ours"), [("-m ddpjob_trainer --lr 0.1", True), ("-m trainer", False), ("ddpjob_trainer", False)]
)
def test_only_the_module_of_that_name_is_the_trainer(words: str, *, is_ours: bool) -> None:
    assert program_of(words.split()).is_trainer is is_ours


@pytest.mark.parametrize("words", [[], ["--lr", "0.1"]], ids=["no arguments", "some"])
@pytest.mark.parametrize("module", [False, True], ids=["a script", "a module"])
def test_a_program_finds_what_python_would_give_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], *, module: bool
) -> None:
    where = tmp_path if module else tmp_path / "code"
    where.mkdir(exist_ok=True)
    (where / "seen_by.py").write_text(SEEN)
    (where / "beside.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["none", *sys.path])
    monkeypatch.setattr(sys, "argv", ["supervisor", "of", "another"])
    for name in ("__main__", "beside"):
        monkeypatch.setitem(sys.modules, name, sys.modules["__main__"])
    del sys.modules["beside"]
    program_of([*(["-m", "seen_by"] if module else ["code/seen_by.py"]), *words]).run()
    file = str(tmp_path / "seen_by.py") if module else "code/seen_by.py"
    assert (tmp_path / "seen").read_text() == repr(([file, *words], str(where), "__main__", file))
