"""Functions of files as programs: what is sent of them, and which are refused."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.packed import PackedProgram
from ddpjob_operator.sdk import modules
from ddpjob_operator.sdk.functions import packed_function, program_of

from .calling import result_of_call

Tree = dict[str, str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Writes files, and imports a module of them."""
    folder, before = tmp_path / "project", {*sys.modules}
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(files: Tree, module: str = "train") -> Any:
        for name, text in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return importlib.import_module(module)

    yield make
    for name in sys.modules.keys() - before:
        del sys.modules[name]


FIT = "def fit(x):\n    return 2 * x\n"
RETURNS = "def train(x=1):\n    return {}\n"
SHAPES: dict[str, tuple[str, Tree, set[str]]] = {
    "alone": ("train", {"train.py": RETURNS.format("x")}, set()),
    "with a module": (
        "train",
        {"train.py": "from mymodel import fit\n" + RETURNS.format("fit(x)"), "mymodel.py": FIT},
        {"mymodel.py"},
    ),
    "imported in the function": (
        "train",
        {"train.py": "def train(x=1):\n    import mymodel\n    return mymodel.fit(x)\n", "mymodel.py": FIT},
        {"mymodel.py"},
    ),
    "indirectly, and in a circle": (
        "train",
        {
            "train.py": "import first\n" + RETURNS.format("first.second.fit(x)"),
            "first.py": "import second\n",
            "second.py": "import first\n" + FIT,
        },
        {"first.py", "second.py"},
    ),
    "a package, with its relative imports": (
        "mine.deep.train",
        {
            "mine/__init__.py": "",
            "mine/deep/__init__.py": "from . import other\n",
            "mine/deep/train.py": "from ..models import fit\nfrom .other import ONE\n"
            + RETURNS.format("fit(x) * ONE"),
            "mine/deep/other.py": "ONE = 1\n",
            "mine/models/__init__.py": "from .net import fit\n",
            "mine/models/net.py": FIT,
        },
        {
            "mine/__init__.py",
            "mine/deep/__init__.py",
            "mine/deep/other.py",
            "mine/models/__init__.py",
            "mine/models/net.py",
        },
    ),
    "a package without __init__": (
        "train",
        {"train.py": "from space import net\n" + RETURNS.format("net.fit(x)"), "space/net.py": FIT},
        {"space/net.py"},
    ),
    "a function of __init__": (
        "mine",
        {"mine/__init__.py": "from .net import fit\n" + RETURNS.format("fit(x)"), "mine/net.py": FIT},
        {"mine/net.py"},
    ),
    "a file whose name is a word of Python": (
        "lambda",
        {"lambda.py": "import net\n" + RETURNS.format("net.fit(x)"), "net.py": FIT},
        {"net.py"},
    ),
    "what may be missing": (
        "train",
        {"train.py": "try:\n    import nowhere\nexcept ImportError:\n    pass\n" + RETURNS.format("x")},
        set(),
    ),
    "decorated": (
        "train",
        {
            "train.py": "import functools\nfrom deco import twice\n@twice\n" + RETURNS.format("x"),
            "deco.py": "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def both(*a, **k):\n"
            "        return 2 * f(*a, **k)\n    return both\n",
        },
        {"deco.py"},
    ),
    "a function with the name of an object that is none": (
        "train",
        {
            "train.py": "import functools\nclass Doubles:\n    def __call__(self, x):\n        return 2 * x\n"
            "@functools.wraps(Doubles(), assigned=())\n" + RETURNS.format("2 * x"),
        },
        set(),
    ),
}


def sent(packed: PackedProgram) -> set[str]:
    return packed.files.keys() - {packed.script, "ddpjob_arguments.json"}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_function_is_sent_with_the_files_beside_it_that_it_imports(
    shape: str, project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, files, others = SHAPES[shape]
    unused = {"unused.py": "raise RuntimeError\n", ".env": "TOKEN=abc\n", "data.csv": "1\n"}
    function = project(files | unused, module).train
    expected = function(x=5)
    packed = packed_function(function, {"x": 5})
    own = next(
        name for name in files if name.removesuffix(".py").removesuffix("/__init__") == module.replace(".", "/")
    )
    assert sent(packed) == {own, *others}
    for name in {module.partition(".")[0], *(Path(name).parts[0].removesuffix(".py") for name in others)}:
        for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == name]:
            del sys.modules[loaded]
    monkeypatch.setattr(sys, "path", sys.path[1:])  # Nothing comes from where it was written.
    assert result_of_call(packed, tmp_path / "pod", monkeypatch) == expected


def test_a_link_that_leads_elsewhere_is_not_followed(project: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("SECRET = 1\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "linked.py").symlink_to(tmp_path / "elsewhere.py")
    train = project({"train.py": "import linked\n" + RETURNS.format("x")}).train
    assert sent(packed_function(train, {})) == {"train.py"}


def test_here_the_files_stay_where_they_are(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = project({"train.py": RETURNS.format("x")}).train
    packed = packed_function(train, {}, here=True)
    assert sent(packed) == set()
    assert f"sys.path.insert(1, {str(tmp_path / 'project')!r})" in packed.files["ddpjob_call.py"].decode()
    assert result_of_call(packed, tmp_path / "run", monkeypatch) == 1


def test_of_a_folder_that_is_sent_only_the_call_is_added(project: Any, tmp_path: Path) -> None:
    train = project({"train.py": RETURNS.format("x")}).train
    packed = packed_function(train, {"x": 2}, source=tmp_path)
    assert packed.files.keys() == {"project/ddpjob_call.py", "project/ddpjob_arguments.json"}
    with pytest.raises(BadInputError, match=r"does not contain .*/project, from which the function is imported"):
        packed_function(train, {}, source=tmp_path / "other")


class Model:
    def fit(self) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def asynchronous() -> None: ...


def nested() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


def plain(lr: float, *, epochs: int = 1) -> None: ...


REFUSED: list[tuple[Any, str]] = [
    (lambda: 1, "a lambda cannot be sent"),
    (generator, "generator is a generator function"),
    (asynchronous, "asynchronous is an async function"),
    (nested(), "inner is defined inside another function"),
    (Model().fit, "Model.fit is a method"),
    (Model.fit, "Model.fit is a method"),
    (Model, "Model is a class, not a Python function"),
    (len, "len is of type builtin_function_or_method, not a Python function"),
    (partial(plain, 1), "a partial cannot be sent"),
    (7, "7 is of type int, not a Python function; give a function without calling it"),
    (time.sleep, "sleep is of type builtin"),
    (Path.cwd, "Path.cwd is a method"),
    (importlib.import_module, "import_module is in an installed package"),
    (pytest.importorskip, "importorskip is in an installed package"),
]


@pytest.mark.parametrize(("function", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_ranks_cannot_import_and_call_is_refused(function: Any, sentence: str) -> None:
    arguments = {"name": "x"} if function is importlib.import_module else {"modname": "x"}
    with pytest.raises(BadInputError) as refused:
        packed_function(function, arguments if "installed" in sentence else {})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "plain(lr: float, *, epochs: int = 1) -> None: missing a required argument: 'lr'"),
        ({"lr": 1, "epoch": 2}, "-> None has no parameter epoch; did you mean epochs?"),
        ([1], "arguments=[1]: must be one mapping, of the names of plain's parameters to their values"),
        ({1: 2}, "arguments has the key 1, but the names of parameters are strings"),
        ({"lr": object()}, "arguments['lr'] is of type object, which is not JSON"),
        ({"lr": "x" * (1 << 20)}, "1 MiB of JSON, but at most 1 MiB can be sent"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_arguments_that_the_function_cannot_get_are_refused(arguments: Any, sentence: str) -> None:
    with pytest.raises(BadInputError) as refused:
        packed_function(plain, arguments)
    assert sentence in str(refused.value)


def test_arguments_of_scripts_and_of_functions_are_not_mixed_up() -> None:
    with pytest.raises(BadInputError, match="are for a function; a script gets a list"):
        program_of("train.py", {"lr": 1}, [])
    with pytest.raises(BadInputError, match="is for a script; a function gets a mapping"):
        program_of(plain, None, ["--lr", 1])
    assert program_of("train.py", None, ["--lr"]) == (None, "train.py")


AT_IMPORT: dict[str, tuple[str, str | None]] = {
    "a call of the function": ("result = train()\n", "line 4: trains when a rank imports the file"),
    "its gradients": ("for _ in range(0):\n    loss.backward()\n", "line 4: trains when a rank imports the file"),
    "a job of its own": (
        "try:\n    ddpjob.submit('other.py')\nexcept NameError:\n    pass\n",
        "line 4: submits a job when a rank imports the file",
    ),
    "under a guard": ("if __name__ == '__main__':\n    train()\n", None),
    "something harmless": ("import random\nrandom.seed(1)\nLIMITS = [n for n in range(3)]\n", None),
}


@pytest.mark.parametrize("what", AT_IMPORT)
def test_a_file_that_trains_when_it_is_imported_is_refused(what: str, project: Any) -> None:
    text, sentence = AT_IMPORT[what]
    train = project({"train.py": f"\ndef train():\n    return 1\n{text}"}).train
    if sentence is None:
        packed_function(train, {})
        return
    with pytest.raises(BadInputError, match=rf"train\.py, {sentence} to get train; put it under: if __name__"):
        packed_function(train, {})


SUBMITS = """
import ddpjob_operator.sdk.functions as functions
def train(): ...
def submit():
    return functions.packed_function(train, {})
"""


def test_a_file_that_submits_when_it_is_imported_would_submit_again_in_each_rank(project: Any) -> None:
    with pytest.raises(BadInputError, match=r"again\.py, line 6: runs again in each rank, which imports the file"):
        project({"again.py": f"{SUBMITS}submit()\n"}, "again")
    project({"once.py": SUBMITS}, "once").submit()


def test_a_function_that_a_decorator_has_replaced_is_refused_with_the_way_to_keep_its_name(project: Any) -> None:
    files = {"deco.py": "def twice(f):\n    def both():\n        return 2 * f()\n    return both\n"}
    files["train.py"] = "from deco import twice\n@twice\ndef train():\n    return 1\n"
    with pytest.raises(BadInputError, match=r"has put both in the place of train; put @functools\.wraps"):
        packed_function(project(files).train, {})


def test_a_name_that_means_another_function_now_is_refused(project: Any) -> None:
    module = project({"train.py": RETURNS.format("x")})
    former, module.train = module.train, len
    with pytest.raises(BadInputError, match=r"train\.train is not the function that was passed"):
        packed_function(former, {})


def test_a_function_whose_source_nobody_has_kept_is_refused() -> None:
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec("def typed(): ...", names)
    with pytest.raises(BadInputError, match=r"the source of typed is not kept \(<string>\)"):
        packed_function(names["typed"], {})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x = (\n", "train.py is not Python: line 1: '(' was never closed"),
        (b"x = 1\0", "train.py is not Python: source code"),
        (b"x = " + b"-" * 100_000 + b"1", "train.py has an expression that is nested too deeply for Python"),
        (None, "cannot read "),
    ],
)
def test_a_file_that_is_no_python_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "train.py").write_bytes(content)
    with pytest.raises(BadInputError) as refused:
        modules.parsed(tmp_path / "train.py")
    assert why in str(refused.value)


@pytest.mark.parametrize(("most", "refused"), [(2, False), (1, True)])
def test_of_more_files_than_a_program_has_none_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int, *, refused: bool
) -> None:
    monkeypatch.setattr(modules, "MOST_FILES", most)
    (tmp_path / "a.py").write_text("import b\nimport a\n")
    (tmp_path / "b.py").write_text("import os, a\n")
    with pytest.raises(BadInputError, match=r"imports more than 1 files of ") if refused else nullcontext():
        assert modules.files_of_imports(tmp_path, ["a"]).keys() == {"a.py", "b.py"}
