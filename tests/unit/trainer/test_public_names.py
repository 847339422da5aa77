"""Each public name of the library has all that a reader of its reference needs, and its examples run."""

import builtins
import re
import traceback
from collections import Counter
from pathlib import Path

import ddpjob
import pytest

from docs.generator.library import Doc, Public, public_names
from tests.docs.pages import PAGES, blocks

NAMES = {name.path: name for name in public_names()}


def of_sdk(name: str) -> bool:
    """Whether it takes a cluster: tests/cluster/test_sdk.py runs its examples."""
    return ddpjob.HOMES.get(name, "").startswith(ddpjob.SDK)


CALLED = {path: name for path, name in NAMES.items() if not name.is_error}
FUNCTIONS = {
    f"{path}.{function}".removesuffix(f".{name.name}"): node
    for path, name in CALLED.items()
    for function, node in name.functions.items()
}
ERRORS = [name.name for name in NAMES.values() if name.is_error]
OBJECTS = next(
    block.text for block in blocks(PAGES["docs/reference/python-library.md"]) if block.language == "python"
)
GLOSSARY = PAGES["docs/reference/glossary.md"].read_text(encoding="utf-8")


def test_the_reference_has_the_names_that_a_program_can_import() -> None:
    assert {f"ddpjob.{name}" for name in ddpjob.__all__} == {path for path in NAMES if path.count(".") == 1}
    assert len(FUNCTIONS) > len(CALLED) > len(ERRORS)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_each_name_has_a_meaning_and_an_example(name: Public) -> None:
    assert name.summary.endswith(".")
    assert name.examples or (name.is_error and name.name != "TrainerError")
    missing = [attribute for attribute, _, meaning in name.attributes if not meaning]
    assert not missing, "these attributes have no docstring"


@pytest.mark.parametrize("name", CALLED.values(), ids=CALLED)
def test_each_method_is_in_an_example_or_called_by_others(name: Public) -> None:
    code = "\n".join(name.examples)
    called = [function for function in name.functions if re.search(rf"\b{function}\(", code)]
    by_others = [function for function, node in name.functions.items() if " calls this" in Doc.of(node).text]
    assert {*called, *by_others} == name.functions.keys() - {"__init__", "__repr__"}


@pytest.mark.parametrize("path", FUNCTIONS)
def test_each_argument_has_a_type_and_a_meaning(path: str) -> None:
    node, doc = FUNCTIONS[path], Doc.of(FUNCTIONS[path])
    given = [*node.args.args, *node.args.kwonlyargs, *([node.args.kwarg] if node.args.kwarg else [])]
    arguments = [each for each in given if each.arg not in {"self", "_"}]
    assert [each.arg for each in arguments if not each.annotation] == []
    assert [each.arg for each in arguments if not doc.says(each.arg)] == []
    assert {*doc.arguments} <= {each.arg for each in arguments}, "it describes an argument that does not exist"


@pytest.mark.parametrize("path", FUNCTIONS)
def test_each_error_that_a_name_raises_can_be_caught_by_its_name(path: str) -> None:
    raised = Doc.of(FUNCTIONS[path]).raised
    assert [error for error in raised if error not in ddpjob.__all__ and not hasattr(builtins, error)] == []


def test_each_error_is_raised_by_something() -> None:
    raised = Counter(error for node in FUNCTIONS.values() for error in Doc.of(node).raised)
    assert [error for error in ERRORS if not raised[error] and error != "TrainerError"] == []


@pytest.mark.parametrize("error", ERRORS)
def test_a_traceback_shows_an_error_by_its_public_name(error: str) -> None:
    shown = traceback.format_exception_only(getattr(ddpjob, error)("a disk is full"))
    assert shown == [f"ddpjob.{error}: a disk is full\n"]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_each_noun_is_in_the_glossary(name: Public) -> None:
    if name.name[0].isupper() and not name.is_error:
        assert re.search(rf"^\| [^|]*`{name.name}`[^|]* \|", GLOSSARY, re.MULTILINE)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    "name", [name for name in NAMES.values() if name.examples and not of_sdk(name.name)], ids=lambda name: name.name
)
def test_its_examples_run(name: Public, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__main__"}
    for example in (OBJECTS, *name.examples):
        exec(example, scope)
