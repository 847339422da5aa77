"""Functions of a notebook: what is sent of its cells and values, and which cannot be sent."""

import builtins
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.packed import PackedProgram
from ddpjob_operator.sdk import cells
from ddpjob_operator.sdk.functions import packed_function
from ddpjob_operator.sdk.tracebacks import last_traceback

from .calling import result_of_call


@dataclass
class Notebook:
    """What IPython makes of its cells: names of `__main__`, and a history."""

    main: ModuleType
    history: list[str] = field(default_factory=lambda: [""])

    def run(self, *cells: str) -> None:
        for source in cells:
            name = f"/tmp/ipykernel_1/{len(self.history)}.py"
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            self.history.append(source)
            exec(compile(source, name, "exec", dont_inherit=True), self.main.__dict__)

    def __getitem__(self, name: str) -> Any:
        return self.main.__dict__[name]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Notebook]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = Notebook(ModuleType("__main__"))
    made.main.__dict__["In"] = made.history
    monkeypatch.setitem(sys.modules, "__main__", made.main)
    yield made
    linecache.clearcache()


def pieces(packed: PackedProgram) -> str:
    return packed.files["ddpjob_notebook.py"].decode()


SHAPES: dict[str, list[str]] = {
    "alone": ["def train():\n    return 7"],
    "values": [
        "LR, SIZE = 0.1, (28, 28)",
        "names = ['a']\nby = {1: None}",
        "def train():\n    return [LR, SIZE[0], names]",
    ],
    "a function of another cell": ["def fit(x):\n    return x * 2", "def train(x=3):\n    return fit(x)"],
    "functions that name each other": [
        "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)",
        "def train():\n    return even(10)",
    ],
    "imports of other cells": [
        "import json as j, os.path\nfrom math import floor as down, sqrt",
        "def train():\n    return j.dumps([down(2.5), os.path.join('a', 'b')])",
    ],
    "a class, its base, its decorator and its default": [
        "from dataclasses import dataclass, field",
        "class Base:\n    def double(self):\n        return self.x * FACTOR",
        "FACTOR = 2\ndef three():\n    return 3",
        "@dataclass\nclass Config(Base):\n    x: int = field(default_factory=three)",
        "def train(of=Config()):\n    return [of.double(), Config(5).double()]",
    ],
    "a name that the function has for itself": [
        "x = object()",
        "def train():\n    x = 1\n    return [x for x in [x]]",
    ],
    "what was defined again": [
        "def fit():\n    return 1",
        "def train():\n    return fit()",
        "def fit():\n    return 2",
    ],
    "a decorated function": [
        "from functools import wraps",
        "def twice(f):\n    @wraps(f)\n    def both():\n        return 2 * f()\n    return both",
        "@twice\ndef train():\n    return 4",
    ],
    "a function with a cache": [
        "import functools",
        "@functools.cache\ndef fit():\n    return 5",
        "def train():\n    return fit()",
    ],
    "a value in the place of a decorated function": [
        "import functools",
        "@functools.cache\ndef fit():\n    return 5",
        "fit = 6",
        "def train():\n    return fit",
    ],
    "a global in a function within": [
        "N = 4",
        "def train():\n    def inner():\n        return N\n    return inner()",
    ],
    "one name of an import of several": ["from math import e, pi", "def train():\n    return pi"],
    "what a star has imported": ["from math import *", "def train():\n    return floor(pi)"],
    "an import that another one replaces": [
        "try:\n    import nowhere.to_be_found as j\nexcept ImportError:\n    import json as j",
        "def train():\n    return j.dumps(1)",
    ],
    "annotations that are not evaluated": [
        "class Tree:\n    def left(self) -> 'Tree':\n        return self",
        "from __future__ import annotations\nclass Node:\n    def me(self) -> Node:\n        return self",
        "from __future__ import annotations\ndef train():\n    return [Node().me().me.__annotations__, Tree is None]",
    ],
    "a cell that is not Python": ["x = 3", "def train():\n    return x"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_function_gets_what_it_names(
    shape: str, notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.run(*SHAPES[shape])
    notebook.history.append("!ls -l")
    packed = packed_function(notebook["train"], {})
    expected = notebook["train"]()
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert result_of_call(packed, tmp_path / "pod", monkeypatch) == expected


def test_nothing_else_of_the_notebook_is_sent(notebook: Notebook) -> None:
    notebook.run(
        "import json, csv\nPASSWORD = 'abcdefgh'\ndata = object()",
        "print('a cell'); x = 5\ndef unused():\n    return data\ndef fit():\n    return x",
        "def train():\n    return json, fit()\ntrain",
    )
    packed = packed_function(notebook["train"], {})
    everything = b"\n".join(packed.files.values()).decode()
    assert "import json\n" in pieces(packed)
    assert "csv" not in everything
    assert "PASSWORD" not in everything
    assert "unused" not in everything
    assert packed.files["ddpjob_cells/In[2].py"].decode().split("\n") == ["", "", "", "def fit():", "    return x"]
    assert packed.told == (
        "of the notebook: fit (In[2]), train (In[3])",
        "values of the notebook, as they are now: x=5",
    )


def test_a_long_value_is_shown_by_its_beginning_and_here_nothing_is_told(notebook: Notebook) -> None:
    notebook.run(f"A, B = {'x' * 38!r}, {'y' * 39!r}", "def train():\n    return A, B")
    packed = packed_function(notebook["train"], {})
    assert packed.told[1] == f"values of the notebook, as they are now: A={'x' * 38!r}, B='{'y' * 39}…"
    assert packed_function(notebook["train"], {}, here=True).told == ()


def test_values_are_those_of_the_moment(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook.run("LR = [1]", "def train():\n    return LR")
    notebook["LR"].append(2)
    packed = packed_function(notebook["train"], {})
    notebook["LR"].append(3)
    assert result_of_call(packed, tmp_path / "pod", monkeypatch) == [1, 2]


def test_modules_beside_the_notebook_travel(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mymodel.py").write_text("import inner\ndef fit():\n    return inner.ONE\n")
    Path("inner.py").write_text("ONE = 1\n")
    notebook.run("def train():\n    from mymodel import fit\n    return fit()")
    packed = packed_function(notebook["train"], {})
    assert {"mymodel.py", "inner.py"} < packed.files.keys()
    assert result_of_call(packed, tmp_path / "pod", monkeypatch) == 1
    here = packed_function(notebook["train"], {}, here=True)
    assert "mymodel.py" not in here.files
    assert result_of_call(here, tmp_path / "run", monkeypatch) == 1


UNNAMED = "def twice(f):\n    def both():\n        return 2 * f()\n    return both"
"""A decorator without functools.wraps."""
REFUSED: dict[str, tuple[list[str], str]] = {
    "an object": (
        ["data = object()", "def train():\n    return data"],
        "train uses data of the notebook, but data is of type object",
    ),
    "an object of a function that it calls": (
        ["data = {'a': object()}", "def fit():\n    return data", "def train():\n    return fit()"],
        "fit uses data of the notebook, but data['a'] is of type object, which is not JSON",
    ),
    "a path": (
        ["from pathlib import Path\nDATA = Path('x')", "def train():\n    return DATA"],
        "what only looks like JSON",
    ),
    "a name that is not there": (
        ["def train():\n    return nothing"],
        "train uses nothing, which the notebook does not define",
    ),
    "values that are too large": (
        ["a, b = 'x' * 60000, 'y' * 9000", "def train():\n    return a + b"],
        "take 67.4 KiB, but at most 64 KiB are sent; the largest: a (58.6 KiB), b (8.791 KiB). Make them",
    ),
    "a secret": (
        ["api_token = 'x'", "def train():\n    return api_token"],
        "train uses api_token, whose name says that it is secret",
    ),
    "a function within a block": (
        ["if True:\n    def fit(): ...", "def train():\n    return fit()"],
        "the source of fit is not kept",
    ),
    "what a decorator has made of the function": (
        [UNNAMED, "@twice\ndef train():\n    return 1"],
        "a decorator has put both in the place of train; put @functools.wraps(…) before def both",
    ),
    "what a decorator has made of a function that it calls": (
        [UNNAMED, "@twice\ndef fit():\n    return 1", "def train():\n    return fit()"],
        "fit is what a decorator in In[2] has made of the function fit; let the decorator use functools.wraps",
    ),
    "what a decorator has made of a function, and is none": (
        [
            "class Of:\n    def __init__(self, f): ...",
            "@Of\ndef fit():\n    return 1",
            "def train():\n    return fit",
        ],
        "fit is what a decorator in In[2] has made of the function fit; let the decorator use functools.wraps",
    ),
    "a lambda": (["fit = lambda: 1", "def train():\n    return fit()"], "the source of fit is not kept"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_sent_is_named(what: str, notebook: Notebook) -> None:
    cells, sentence = REFUSED[what]
    notebook.run(*cells)
    with pytest.raises(BadInputError) as refused:
        packed_function(notebook["train"], {})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [("def fit():\n    return 1", "def fit():\n    return 2"), (
        "class fit:\n    def __init__(self): self.x = 1", "class fit:\n    def __init__(self): self.x = 2"
    )],
    ids=["function", "class"],
)  # fmt: skip
def test_a_definition_that_was_not_reached_is_not_sent_in_the_place_of_the_one_that_counts(
    notebook: Notebook, before: str, after: str
) -> None:
    notebook.run(f"x = 1\n{before}", "def train():\n    return fit()")
    with pytest.raises(ZeroDivisionError):
        notebook.run(f"x = 1 / 0\n{after}")
    with pytest.raises(BadInputError, match=r"fit is not as In\[3\] defines it; run that cell again"):
        packed_function(notebook["train"], {})


def test_what_a_notebook_adds_to_python_is_refused(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def display(_: object) -> None:
        """Of IPython."""

    display.__module__ = "IPython.core.display_functions"
    monkeypatch.setattr(builtins, "display", display, raising=False)
    notebook.run("def train():\n    display(len([]))")
    with pytest.raises(BadInputError, match="train uses display, which only notebooks have"):
        packed_function(notebook["train"], {})


def test_at_pythons_prompt_what_was_typed_is_kept_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = {
        "<python-input-0>": (9, None, ["x = 1\n"], "<python-input-0>"),
        "<python-input-1>": (lambda: "not read yet",),
        "train.py": (9, None, ["y = 1\n"], "train.py"),
    }
    monkeypatch.setattr(linecache, "cache", typed)
    assert [(cell.name, cell.source) for cell in cells.run_cells({})] == [("python-input-0", "x = 1\n")]
    history = ["", "x = 1", "", "y = 2"]
    assert [cell.name for cell in cells.run_cells({"In": history})] == ["In[1]", "In[3]"]


def test_a_cell_that_was_edited_but_not_run_again_is_not_sent_as_it_is_now(notebook: Notebook) -> None:
    notebook.run("def train():\n    return 1")
    notebook.history[-1] = "\ndef train():\n    return 2"
    with pytest.raises(BadInputError, match=r"^train is not as In\[1\] defines it; run that cell again$"):
        packed_function(notebook["train"], {})


def test_a_function_that_was_replaced_is_not_sent_with_the_source_of_another(notebook: Notebook) -> None:
    notebook.run("def train():\n    return 1")
    former = notebook["train"]
    notebook.run("\ndef train():\n    return 2")
    with pytest.raises(BadInputError, match="train is not what the notebook's train is now"):
        packed_function(former, {})


def test_a_traceback_has_the_name_and_the_lines_of_the_cell(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.run("x = 1", "import math\n\n\ndef train():\n    return math.sqrt(-1)")
    packed = packed_function(notebook["train"], {})
    with pytest.raises(ValueError, match="math") as raised:
        result_of_call(packed, tmp_path / "pod", monkeypatch)
    frame = raised.traceback[-1]
    assert (Path(frame.path).name, frame.lineno + 1) == ("In[2].py", 5)
    printed = [
        "Traceback (most recent call last):",
        f'  File "{frame.path}", line 5, in train',
        "    return math.sqrt(-1)",
        "ValueError: math domain error",
    ]
    assert last_traceback(printed).splitlines()[1:3] == ["  Cell In[2], line 5, in train", "    return math.sqrt(-1)"]
