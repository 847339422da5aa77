"""Which variables a script sets before its import of PyTorch, as far as its text shows them."""

import time
import warnings
from pathlib import Path

import pytest
from ddpjob_rank.running.program import Program
from ddpjob_rank.running.script.read_at_import import reader_of
from ddpjob_rank.running.script.script_environment import Variables
from ddpjob_rank.running.script.script_reader import variables_of

SHELL = {"MKL_NUM_THREADS": "7", "SHELL_HAS": "it"}
"""The environment before the script's first line."""


def read(directory: Path, script: str, *, others: bool = False, **modules: str) -> Variables:
    for name, text in {"train": script, **modules}.items():
        file = directory / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return variables_of(Program(module=False, name=str(directory / "train.py")), SHELL, others=others)


SHOWN = {
    "assigned": 'import os\nos.environ["OMP_NUM_THREADS"] = "3"',
    "by another name": 'from os import environ as env\nenv["OMP_NUM_THREADS"] = "3"',
    "putenv": 'import os as system\nsystem.putenv("OMP_NUM_THREADS", "3")',
    "a default": 'import os\nos.environ.setdefault("OMP_NUM_THREADS", "3")',
    "a default from itself": 'import os\nos.environ["OMP_NUM_THREADS"] = os.getenv("OMP_NUM_THREADS", "3")',
    "a dict": 'import os\nos.environ.update({"OMP_NUM_THREADS": "3"})',
    "keywords": 'import os\nos.environ.update(OMP_NUM_THREADS="3")',
    "dict()": 'import os\nos.environ.update(dict(OMP_NUM_THREADS="3"))',
    "an operator": 'import os\nos.environ |= {"OMP_NUM_THREADS": "3"}',
    "a number": 'import os\nTHREADS: int = 3\nos.environ["OMP_NUM_THREADS"] = str(THREADS)',
    "a format": 'import os\nTHREADS = 3\nos.environ["OMP_NUM_THREADS"] = f"{THREADS}"',
    "if it is not set": 'import os\nif "OMP_NUM_THREADS" not in os.environ:\n    os.environ["OMP_NUM_THREADS"] = "3"',
    "if it is None": (
        'import os\nif os.environ.get("OMP_NUM_THREADS") is None:\n    os.environ["OMP_NUM_THREADS"] = "3"'
    ),
    "in a function": 'import os\ndef begin():\n    os.environ["OMP_NUM_THREADS"] = "3"\nbegin()',
    "in a function that uses a global": (
        'import os\nn = "2"\ndef begin():\n  global n\n  n = "3"\n  os.environ["OMP_NUM_THREADS"] = n\nbegin()'
    ),
    "in a function that is defined again": (
        'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "2"\n'
        'def begin(): os.environ["OMP_NUM_THREADS"] = "3"\nbegin()'
    ),
    "in a function that may be another one afterwards": (
        'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "3"\nbegin()\nif input():\n  def begin(): 0'
    ),
    "in main()": (
        'import os\ndef main():\n    os.environ["OMP_NUM_THREADS"] = "3"\n    import torch\n'
        'if __name__ == "__main__":\n    main()'
    ),
    "in try and with": 'import os\ntry:\n  with open("x"):\n    os.environ["OMP_NUM_THREADS"] = "3"\nfinally: 0',
    "in a class": 'import os\nclass Config:\n    os.environ["OMP_NUM_THREADS"] = "3"',
    "the last one counts": (
        'import os\nos.environ["OMP_NUM_THREADS"] = input()\nos.environ["OMP_NUM_THREADS"] = "3"'
    ),
    "in a local module": "import settings",
    "in a function of one": "from settings import begin\nbegin()",
    "with a constant of one": 'import os, settings\nos.environ["OMP_NUM_THREADS"] = settings.THREADS',
    "in a package": "import package.first",
    "in directories": "from above.below.third import *",
    "after a relative import that fails": (
        "try:\n    from .settings import THREADS\nexcept ImportError:\n    THREADS = '4'\nimport settings"
    ),
    "after a function returned": "def first():\n    if input(): return\nfirst()\nimport settings",
    "by what a function returns": (
        'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "3"\ndef first(): return begin()\nfirst()'
    ),
    "after other packages": 'import os, numpy\nfrom pathlib import Path\nos.environ["OMP_NUM_THREADS"] = "3"',
}

MODULES = {
    "settings": 'import os\nTHREADS = "3"\ndef begin():\n    os.environ["OMP_NUM_THREADS"] = THREADS\nbegin()',
    "package/__init__": "",
    "package/first": "from .second import *",
    "above/below/third": 'import os\nos.environ["OMP_NUM_THREADS"] = "3"',
    "package/second": 'import os\nos.environ["OMP_NUM_THREADS"] = "3"',
}


@pytest.mark.parametrize("script", SHOWN.values(), ids=SHOWN)
def test_a_value_that_the_text_shows_before_the_import_is_found(tmp_path: Path, script: str) -> None:
    found = read(tmp_path, f"{script}\nimport torch\nos.environ['TORCH_LOGS'] = 'late'\n", **MODULES)
    assert (found.values, found.unclear) == ({"OMP_NUM_THREADS": "3"}, {})


UNSHOWN = {
    "computed": 'import os\nos.environ["OMP_NUM_THREADS"] = str(os.cpu_count())',
    "a default that is computed": 'import os\nos.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))',
    "of the rank": 'import os\nos.environ["OMP_NUM_THREADS"] = os.environ["LOCAL_RANK"]',
    "perhaps": 'import os, sys\nif len(sys.argv) > 1: os.environ["OMP_NUM_THREADS"] = "3"',
    "in a loop": 'import os\nfor n in "12": os.environ["OMP_NUM_THREADS"] = "3"',
    "of an argument": 'import os\ndef begin(n): os.environ["OMP_NUM_THREADS"] = n\nbegin(input())',
    "of an argument with a known name": (
        'import os\nn = "3"\ndef begin(n): os.environ["OMP_NUM_THREADS"] = n\nbegin(input())'
    ),
    "of a context": 'import os\nn = "3"\nwith open(n) as n: os.environ["OMP_NUM_THREADS"] = n',
    "of a list": 'import os\nn = "3"\n[*n] = input()\nos.environ["OMP_NUM_THREADS"] = n',
    "of a loop": 'import os\nn = "3"\nfor n in "12": 0\nos.environ["OMP_NUM_THREADS"] = n',
    "of a loop of pairs": 'import os\nn = "3"\nfor _, n in input(): 0\nos.environ["OMP_NUM_THREADS"] = n',
    "changed in a loop": 'import os\nn = "3"\nwhile input(): n = "4"\nos.environ["OMP_NUM_THREADS"] = n',
    "of a loop's condition": 'import os\nn = "3"\nwhile (n := input()): 0\nos.environ["OMP_NUM_THREADS"] = n',
    "of an import": 'import os\nn = "3"\nimport json as n\nos.environ["OMP_NUM_THREADS"] = n',
    "of a class": 'import os\nn = "3"\nclass n: 0\nos.environ["OMP_NUM_THREADS"] = n',
    "of a pattern": 'import os\nn = "3"\nmatch input():\n  case [_, n]: 0\nos.environ["OMP_NUM_THREADS"] = n',
    "of the rest of a pattern": (
        'import os\nn = "3"\nmatch input():\n  case {0: _, **n}: 0\nos.environ["OMP_NUM_THREADS"] = n'
    ),
    "of a handler": 'import os\nn = "3"\ntry: 0\nexcept OSError as n: 0\nos.environ["OMP_NUM_THREADS"] = n',
    "of a coroutine": 'import os\nn = "3"\nasync def n(): 0\nos.environ["OMP_NUM_THREADS"] = n',
    "changed after a loop": 'import os\nn = "3"\nfor _ in "12": 0\nelse: n = "4"\nos.environ["OMP_NUM_THREADS"] = n',
    "of a walrus": 'import os\nn = "3"\n(n := input())\nos.environ["OMP_NUM_THREADS"] = n',
    "by a text that doubles": (
        'import os\nx = "3"\n' + 'x = f"{x}{x}"\n' * 15 + 'if x: os.environ["OMP_NUM_THREADS"] = "3"'
    ),
    "perhaps before a default": (
        'import os\nif input(): os.environ["OMP_NUM_THREADS"] = "2"\nos.environ.setdefault("OMP_NUM_THREADS", "3")'
    ),
    "perhaps after a return": (
        'import os\ndef begin():\n  if input(): return\n  os.environ["OMP_NUM_THREADS"] = "3"\nbegin()'
    ),
    "perhaps after an exception": (
        'import os\ntry:\n  import horovod\n  os.environ["OMP_NUM_THREADS"] = "3"\nexcept ImportError: 0'
    ),
    "of a global that a function sets": (
        'import os\nn = "3"\ndef begin():\n  global n\n  n = "4"\nbegin()\nos.environ["OMP_NUM_THREADS"] = n'
    ),
    "of a global that a function inside another one sets": (
        'import os\nn = "3"\ndef begin():\n  def first():\n    global n\n    n = "4"\n  first()\nbegin()\n'
        'os.environ["OMP_NUM_THREADS"] = n'
    ),
    "of a name around a function that sets it": (
        'import os\ndef begin():\n  n = "3"\n  def first():\n    nonlocal n\n    n = "4"\n  first()\n'
        '  os.environ["OMP_NUM_THREADS"] = n\nbegin()'
    ),
    "by one of two functions": (
        'import os\nif input():\n  def begin(): os.environ["OMP_NUM_THREADS"] = "3"\nelse:\n  def begin(): 0\nbegin()'
    ),
    "by the other of two functions": (
        'import os\nif input():\n  def begin(): 0\nelse:\n  def begin(): os.environ["OMP_NUM_THREADS"] = "3"\nbegin()'
    ),
    "by the first of three functions": (
        'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "3"\n'
        "if input():\n  def begin(): 0\nif input():\n  def begin(): 0\nbegin()"
    ),
    "by a function in place of an imported one": (
        "import os\ntry:\n  from numpy import begin\nexcept ImportError:\n"
        '  def begin(): os.environ["OMP_NUM_THREADS"] = "3"\nbegin()'
    ),
    "by a function that an import may replace": (
        'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "3"\nif input():\n  from numpy import begin\nbegin()'
    ),
    "after a loop": 'import os\nwhile input(): break\nelse: os.environ["OMP_NUM_THREADS"] = "3"',
    "in a handler": 'import os\ntry: 0\nexcept OSError: os.environ["OMP_NUM_THREADS"] = "3"',
    "of the shell": 'import os\nos.environ["OMP_NUM_THREADS"] = "3" + os.environ["MKL_NUM_THREADS"]',
}


@pytest.mark.parametrize("script", UNSHOWN.values(), ids=UNSHOWN)
def test_a_variable_whose_value_only_the_running_script_knows_is_named_with_its_line(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = read(tmp_path, f"{script}\nimport torch\n")
    line = 1 + next(nth for nth, text in enumerate(script.splitlines()) if '"OMP' in text)
    assert {name: str(place) for name, place in found.unclear.items()} == {"OMP_NUM_THREADS": f"train.py:{line}"}
    assert found.values == {}


def test_of_two_functions_that_may_be_imported_neither_is_believed(tmp_path: Path) -> None:
    script = (
        "try:\n  from settings import begin\nexcept ImportError:\n  from others import begin\nbegin()\nimport torch"
    )
    begins = 'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "{}"'
    found = read(tmp_path, script, settings=begins.format(3), others=begins.format(4))
    assert (found.values, [*found.unclear]) == ({}, ["OMP_NUM_THREADS"])


NOTHING = {
    "after the import": 'import os, torch\nos.environ["OMP_NUM_THREADS"] = input()',
    "after an import by a package": 'import os, accelerate\nos.environ["OMP_NUM_THREADS"] = input()',
    "after an import by a module": 'import os, uses\nos.environ["OMP_NUM_THREADS"] = input()',
    "read later": 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = input()\nos.environ["NCCL_DEBUG"] = "INFO"',
    "read again": 'import os\nos.environ["TORCHINDUCTOR_CACHE_DIR"] = input()',
    "of nobody": 'import os\nos.environ["WANDB_PROJECT"] = input()\nos.environ[input()] = "3"',
    "set already": 'import os\nos.environ.setdefault("MKL_NUM_THREADS", input())',
    "the same": 'import os\nos.environ["MKL_NUM_THREADS"] = os.environ.get("MKL_NUM_THREADS", "1")',
    "never called": 'import os\ndef begin(): os.environ["OMP_NUM_THREADS"] = "3"',
    "not this branch": 'import os\nif __name__ != "__main__": os.environ["OMP_NUM_THREADS"] = "3"',
    "another environ": 'environ = {}\nenviron["OMP_NUM_THREADS"] = "3"',
    "a copy": 'import os\nenv = os.environ.copy()\nenv["OMP_NUM_THREADS"] = "3"',
    "unknown": "import os, dotenv\ndotenv.load_dotenv()\nos.environ.update(dotenv.dotenv_values())",
}


@pytest.mark.parametrize("script", NOTHING.values(), ids=NOTHING)
def test_what_pytorch_would_not_see_either_keeps_no_script_from_a_warm_start(tmp_path: Path, script: str) -> None:
    found = read(tmp_path, script, uses="import torch")
    assert (found.values, found.unclear) == ({}, {})


def test_what_only_dynamo_reads_counts_until_dynamo_is_imported(tmp_path: Path) -> None:
    script = 'import os, torch\nos.environ["TORCHDYNAMO_VERBOSE"] = "1"\nimport torch._dynamo\n'
    found = read(tmp_path, script + 'os.environ["TORCHINDUCTOR_CPP_WRAPPER"] = "1"\n')
    assert found.values == {"TORCHDYNAMO_VERBOSE": "1"}


def test_a_removed_variable_is_not_in_the_warm_process_either(tmp_path: Path) -> None:
    for removal in ("del os.environ['MKL_NUM_THREADS']", "os.environ.pop('MKL_NUM_THREADS', None)"):
        found = read(tmp_path, f"import os\n{removal}\nimport torch\n")
        assert found.unclear.keys() == {"MKL_NUM_THREADS"}
    assert read(tmp_path, "import os\nos.unsetenv('TORCH_LOGS')\nimport torch\n").unclear == {}


def test_with_modules_of_the_users_all_constants_count(tmp_path: Path) -> None:
    script = 'import os\nos.environ["HF_HOME"] = "/data"\nos.environ["HF_HUB_CACHE"] = input()\nimport torch\n'
    assert read(tmp_path, script, others=True).values == {"HF_HOME": "/data"}
    assert read(tmp_path, script, others=True).unclear == {}
    assert read(tmp_path, "import os\nos.environ.setdefault('SHELL_HAS', 'no')", others=True).values == {}


@pytest.mark.parametrize("value", ["\\0", "\\ud800", "x" * 20_000], ids=["null", "half", "long"])
def test_a_value_that_no_process_can_be_given_is_left_to_the_script(tmp_path: Path, value: str) -> None:
    script = f"import os\nos.environ['A=B'] = '1'\nos.environ[''] = '1'\nos.environ['OMP_PLACES'] = '{value}'\n"
    found = read(tmp_path, script, others=True)
    assert (found.values, found.unclear.keys()) == ({}, {"OMP_PLACES"})


def test_a_module_is_read_as_python_would_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "pkg/__init__.py": 'import os\nos.environ["TORCH_LOGS"] = "dynamo"\n',
        "pkg/__main__.py": "from . import train\n",
        "pkg/train.py": 'import os\nfrom .threads import N\nos.environ["OMP_NUM_THREADS"] = N\nimport torch\n',
        "pkg/threads.py": 'N = "3"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for module in ("pkg", "pkg.train"):
        found = variables_of(Program(module=True, name=module), {})
        assert found.values == {"TORCH_LOGS": "dynamo", "OMP_NUM_THREADS": "3"}, module


def test_where_pytorch_is_imported_is_known(tmp_path: Path) -> None:
    found = read(tmp_path, "import os\nif True:\n  import uses\nimport torch\n", uses="\nimport torch\n")
    assert (found.main_line, found.imported and Path(found.imported.file).name) == (2, "uses.py")
    assert found.imported is not None
    assert found.imported.line == 2


STRANGE = {
    "no Python": "def (:",
    "null bytes": "import os\0",
    "not UTF-8": "# coding: nosuch\n",
    "deep": f"import os\nx = {'(' * 150}1{')' * 150}\n",
    "deeper": f"x = {'-' * 30_000}1\n",
    "many": "import os\n" + 'os.environ["A"] = "1"\n' * 12_000,
    "long": f"import os\nx = '{'x' * 300_000}'\n",
    "a call of itself": "def f(): f(); f()\nf()\n",
    "calls of calls": "".join(f"def f{n}():\n  f{n + 1}()\n  f{n + 1}()\n" for n in range(30)) + "f0()\n",
    "many calls": "def f9(): 0\n" + "".join(f"def f{n}():\n" + f"  f{n + 1}()\n" * 9 for n in range(2, 9)) + "f2()\n",
    "an import of itself": "import train\n",
    "a wrong relative import": "from ... import x\n",
    "calls of a long line": f"def f(): g({'0, ' * 10_000})\n" + "f()\n" * 5000,
    "an escape": "import os\nx = '\\d'\nos.environ['OMP_NUM_THREADS']\n",
    "wrong calls": "import os\nos.environ.get()\nos.environ.setdefault(1, 2)\nos.environ[None] = 1\ndict(1)\nstr()\n",
}


@pytest.mark.parametrize("script", STRANGE.values(), ids=STRANGE)
def test_no_strange_script_raises_an_error_warns_or_takes_long(tmp_path: Path, script: str) -> None:
    (tmp_path / "train.py").write_text(script, newline="")
    begun = time.process_time()
    with warnings.catch_warnings(action="error"):
        found = variables_of(Program(module=False, name=str(tmp_path / "train.py")), {})
    assert (found.values, found.unclear) == ({}, {})
    assert time.process_time() - begun < 3


def test_no_file_or_no_regular_one_is_no_error(tmp_path: Path) -> None:
    import os  # noqa: PLC0415

    os.mkfifo(tmp_path / "pipe.py")
    for name in ("pipe.py", "nosuch.py", "."):
        assert variables_of(Program(module=False, name=str(tmp_path / name)), {}).values == {}
    for module in ("no.such.module", "torch.distributed.run", ""):
        assert variables_of(Program(module=True, name=module), {}).values == {}


@pytest.mark.parametrize(
    ("variable", "reader"),
    [
        ("OMP_NUM_THREADS", "torch"),
        ("PYTORCH_CUDA_ALLOC_CONF", "torch"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "torch._dynamo"),
        ("CUDA_VISIBLE_DEVICES", None),
        ("TORCHINDUCTOR_CACHE_DIR", None),
        ("TORCH_HOME", None),
    ],
)
def test_only_what_is_read_at_the_import_is_on_the_list(variable: str, reader: str | None) -> None:
    assert reader_of(variable) == reader


def test_a_folder_that_the_script_adds_to_its_path_is_searched(tmp_path: Path) -> None:
    """So does the script that calls a function whose file stays where it is."""
    script = f"import sys\nsys.path.insert(1, {str(tmp_path / 'elsewhere')!r})\nfrom mymodel import train"
    module = 'import os\nos.environ["OMP_NUM_THREADS"] = "3"\nimport torch\ndef train(): ...'
    found = read(tmp_path, script, **{"elsewhere/mymodel": module})
    assert found.values["OMP_NUM_THREADS"] == "3"
