"""`make mutants` breaks what differs from a base, and only what a test could notice."""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coverage import CoverageData

from tests.mutants import __main__ as mutants
from tests.mutants import change, copies, faults, reach
from tests.mutants.covering import LAST, ONLY, REACH, SECONDS, pytest_collection_modifyitems

ENGINE, RANK = "operator/ddpjob_operator/engine/it.py", "trainer/ddpjob_rank/it.py"


class Project:
    """A repository of its own, on main, whose first commit is two days old."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        self.write(ENGINE, "one = 1\ntwo = 2\nthree = 3\n")
        self.first = self.commit(days=2)

    def git(self, *words: str, days: float = 0) -> str:
        when = (datetime.now(UTC) - timedelta(days=days)).isoformat()
        who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = os.environ | who | {"GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when}
        return subprocess.run(
            ["git", *words], cwd=self.root, env=env, check=True, capture_output=True, text=True
        ).stdout

    def write(self, file: str, text: str) -> None:
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text(text, encoding="utf-8")

    def commit(self, days: float = 0) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x", days=days)
        return self.git("rev-parse", "HEAD").strip()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class TestBase:
    def test_a_branch_s_change_begins_where_it_left_main(self, project: Project) -> None:
        project.git("switch", "--quiet", "--create=mine")
        project.write(ENGINE, "one = 2\n")
        project.commit()
        assert change.since(project.root) == project.first

    def test_main_s_change_begins_at_its_last_commit_of_a_day_ago(self, project: Project) -> None:
        project.write(ENGINE, "one = 2\n")
        yesterday = project.commit(days=1.01)
        project.write(ENGINE, "one = 3\n")
        project.commit()
        assert change.since(project.root) == yesterday

    def test_a_change_begins_where_the_branch_left_the_base_that_is_named(self, project: Project) -> None:
        project.git("branch", "theirs")
        project.write(ENGINE, "one = 2\n")
        project.commit()
        assert change.since(project.root, "theirs") == project.first

    @pytest.mark.parametrize("base", ["nowhere", "--all", ""])
    def test_a_base_that_is_not_there_is_told_in_one_sentence(
        self, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: str
    ) -> None:
        project.git("branch", "--move", "another")
        assert called(project, monkeypatch, f"--base={base}") == 2
        said = capsys.readouterr()
        assert "as BASE=" in said.err
        assert (said.out, said.err.count("\n")) == ("", 1)

    def test_main_without_a_commit_that_old_says_so(self, project: Project) -> None:
        project.git("checkout", "--quiet", "--orphan=new")
        project.commit()
        project.git("branch", "--move", "--force", "main")
        with pytest.raises(ValueError, match="no commit here is a day old"):
            change.since(project.root)


class TestChange:
    def test_it_has_the_lines_that_differ_committed_or_not(self, project: Project) -> None:
        project.write(ENGINE, "one = 1\ntwo = 3\nthree = 3\n")
        project.commit()
        project.write(ENGINE, "one = 1\ntwo = 3\nthree = 3\nfour = 4\nfive = 5\n")
        project.write(RANK, "six = 6\n")
        assert change.changed(project.root, project.first) == {ENGINE: {2, 4, 5}, RANK: {1}}

    def test_it_leaves_out_what_went_or_moved_and_what_is_no_program(self, project: Project) -> None:
        moved = ENGINE.replace("it", "that")
        project.git("mv", ENGINE, moved)
        project.write("operator/it.md", "words\n")
        project.write("tests/it.py", "one = 1\n")
        moved_only = project.commit()
        project.write(moved, "one = 1\n")
        assert change.changed(project.root, moved_only) == {}

    def test_where_no_code_differs_there_is_nothing_to_break(
        self, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project.write(ENGINE, "one = 1\n# Words.\ntwo = 2\nthree = 3\n")
        assert called(project, monkeypatch) == 0
        assert capsys.readouterr().out.startswith("No code differs from ")


def called(project: Project, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(mutants, "ROOT", project.root)
    monkeypatch.setattr(sys, "argv", ["mutants", *words])
    return mutants.main()


def broken(source: str) -> set[str]:
    """What becomes of a source, by each of its mutants."""
    return {mutant.mutated.decode() for mutant in faults.of("it.py", source.encode()) if mutant.is_python}


class TestFaults:
    @pytest.mark.parametrize(
        ("source", "fault"),
        [
            ("if a < b: pass", "if (a <= b): pass"),
            ("if a < b: pass", "if True: pass"),
            ("if a < b: pass", "if False: pass"),
            ("if a is None and b: pass", "if a is None and True: pass"),
            ("x = a or b", "x = a or False"),
            ("x = [a for a in b if a]", "x = [a for a in b if True]"),
            ("x = 2 * wait", "x = (2 / wait)"),
            ("x = 2 * wait", "x = 3 * wait"),
            ("SECONDS = 30.0", "SECONDS = 60.0"),
            ("x = min(a, b)", "x = max(a, b)"),
            ("x = f(a, rank=rank)", "x = f(a, **{})"),
            ("for a in b: pass", "for a in (): pass"),
            ("self.ünder = 1", "pass"),
            ("x = ü if not a else b", "x = ü if (a) else b"),
            ("f(\n  a)", "pass"),
            ("raise ValueError('words')", "pass"),
            ("try: pass\nexcept OSError as e: pass", "try: pass\nexcept () as e: pass"),
            ("while a:\n  break", "while a:\n  continue"),
        ],
    )
    def test_it_is_put_in(self, source: str, fault: str) -> None:
        assert fault in broken(source)

    @pytest.mark.parametrize(
        "source",
        [
            '"""A docstring: 1 + 1."""',
            "# A comment: 1 + 1.",
            "def f(a: int | None, *, b: 'A | B') -> Literal[1]: ...",
            "x: tuple[int | Literal[3], ...]",
            "logger.warning('%s: %s', a, b + 1)",
            "x = f'{a + 1} of {b}'",
            "x = 'words' + str(a + 1)",
            "x = parser.add_argument('-x', help='words')",
            "assert a < b",
            "if TYPE_CHECKING: from a import b",
            "@dataclass(frozen=True)\nclass A: ...",
            "class A(B, frozen=True): ...",
            "x = zip(a, b, strict=True)",
        ],
    )
    def test_what_is_no_code_stays(self, source: str) -> None:
        assert broken(source) == set()

    def test_a_person_reads_the_whole_statement_before_and_after(self) -> None:
        source = b"def f():\n    x = min(\n        a,\n        1,\n    )\n"
        said = {mutant.change for mutant in faults.of("it.py", source)}
        assert ("x = min(", "x = max(") in said


LINES = {ENGINE: set(range(1, 31)), RANK: set(range(1, 11))}


class TestDraw:
    @pytest.fixture(autouse=True)
    def written(self, project: Project) -> None:
        project.write(ENGINE, "if a < b and c: x = 1 + 2\n" * 30)
        project.write(RANK, "x = 1\n" * 10)

    def test_each_line_has_one(self, project: Project) -> None:
        drawn = change.drawn(project.root, LINES, 1, None)
        assert {(one.file, one.lines.start) for one in drawn} == {
            (file, line) for file, lines in LINES.items() for line in lines
        }
        assert len(drawn) == 40

    def test_each_room_has_at_most_as_many_as_asked_for(self, project: Project) -> None:
        drawn = change.drawn(project.root, LINES, 1, 20)
        assert Counter(change.room(one.file) for one in drawn) == {
            "operator/ddpjob_operator/engine": 20,
            "trainer/ddpjob_rank": 10,
        }

    def test_it_is_the_same_for_the_same_seed_only(self, project: Project) -> None:
        draws = [[str(one) for one in change.drawn(project.root, LINES, seed, 5)] for seed in (1, 1, 2)]
        assert draws[0] == draws[1] != draws[2]


class TestReach:
    SOURCE = b"LIMIT = 1 + 2\n\ndef limited(x):\n    return x < 3\n\ndef other(x):\n    return x < 4\n"
    OWN, USER, NAMED, FAR = (
        f"tests/unit/{name}.py::test" for name in ("other/test_limits", "test_a", "test_b", "test_c")
    )

    @pytest.fixture
    def known(self, tmp_path: Path) -> reach.Reach:
        """Of a function two tests run all, the slower one first, and of another one test only its first line."""
        sources = {ENGINE: self.SOURCE.decode(), RANK: "x = LIMIT\nx = limited(1)\nx = UNLIMITED\n"}
        sources |= {test.partition("::")[0]: "" for test in (self.OWN, self.USER, self.FAR)}
        sources[self.NAMED.partition("::")[0]] = "assert it.LIMIT"
        for file, source in sources.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(source, encoding="utf-8")
        data = CoverageData(str(tmp_path / REACH))
        data.set_context("")
        data.add_lines({ENGINE: [1, 3]})
        data.set_context(self.OWN)
        data.add_lines({ENGINE: [4], RANK: [1]})
        data.set_context(self.USER)
        data.add_lines({RANK: [1, 2]})
        data.set_context(self.FAR)
        data.add_lines({RANK: [3]})
        data.write()
        seconds = {self.OWN: 4, self.USER: 3, self.NAMED: 2, self.FAR: 1}
        (tmp_path / SECONDS).write_text(json.dumps(seconds), encoding="utf-8")
        return reach.Reach(tmp_path, tmp_path)

    @pytest.mark.parametrize(
        ("line", "turns"),
        [
            (1, [["NAMED", "OWN", "USER"]]),
            (4, [["OWN"], ["USER", "FAR", "NAMED"]]),
            (7, [["OWN", "FAR", "NAMED"]]),
        ],
        ids=["run by an import alone", "run by a test", "run by none"],
    )
    def test_a_mutant_meets_the_tests_that_run_its_line_and_a_few_that_are_near(
        self, known: reach.Reach, monkeypatch: pytest.MonkeyPatch, line: int, turns: list[list[str]]
    ) -> None:
        monkeypatch.setattr(reach, "NEAREST", 3)
        mutant = next(one for one in faults.of(ENGINE, self.SOURCE) if one.lines.start == line)
        assert [*known.unit(mutant)] == [[getattr(self, name) for name in turn] for turn in turns]
        assert known.reached(mutant) is (line != 7)

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            ("LIMIT: int = 1", "LIMIT"),
            ("TABLE = {\n  'a': 1,\n}", "TABLE"),
            ("@decorated(1)\ndef limited(x): ...", "limited"),
            ("class Limit:\n  def of(self, x=1): ...", "of"),
            ("class Limit:\n  most: int = 1", "most"),
            ("class Limit:\n  def __init__(self): self.most = 1", "Limit"),
            ("if x:\n  y = 1", ""),
        ],
    )
    def test_what_is_broken_has_the_name_by_which_others_use_it(self, source: str, name: str) -> None:
        assert {reach.name_of(mutant) for mutant in faults.of("it.py", source.encode())} == {name}


class TestMeasuring:
    def test_what_was_measured_holds_until_a_file_differs(self, project: Project) -> None:
        before = copies.digest(project.root)
        assert copies.digest(project.root) == before
        project.write("untracked.py", "")
        assert copies.digest(project.root) != before

    def test_each_table_of_the_engine_is_measured_before_those_who_look_at_all_tables(
        self,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.delenv(ONLY, raising=False)
        names = [f"{file}::test_it[x]" for file in ("tests/unit/a.py", LAST, "tests/unit/engine/test_in_place.py")]
        items: Any = [SimpleNamespace(nodeid=name) for name in names]
        pytest_collection_modifyitems(items)
        assert [item.nodeid for item in items] == [names[0], names[2], names[1]]
        assert (Path(__file__).parents[2] / LAST).is_file()
