"""The public names of `ddpjob`, their types as somebody else's type checker sees them, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import ddpjob

EXAMPLES = Path(__file__).with_name("typing_of_the_library.py")


def test_every_public_name_is_exported_and_its_types_are_checked() -> None:
    """By mypy, which `make unit` lets read the examples too."""
    used = {
        node.attr
        for node in ast.walk(ast.parse(EXAMPLES.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ddpjob"
    }
    assert sorted(used) == ddpjob.__all__
    assert {*ddpjob.__all__} <= {*dir(ddpjob)} | {*ddpjob.HOMES}
    methods = {name for name in vars(ddpjob.Job) if not name.startswith("_")}
    text = EXAMPLES.read_text(encoding="utf-8")
    assert {name for name in methods if f"job.{name}" not in text} == set()


MOST_MODULES = 90
"""Importing 75 modules of Python's own library takes 25 to 35 ms of CPU on a slow core."""


def test_importing_it_imports_nothing_but_a_few_modules_of_python() -> None:
    program = "import sys; before = {*sys.modules}; import ddpjob; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    modules = done.stdout.split()
    assert {name.partition(".")[0] for name in modules} - sys.stdlib_module_names == {"ddpjob", "ddpjob_rank"}
    assert len(modules) <= MOST_MODULES
