"""Every pattern in our source takes time in proportion to the text, however hostile the text is."""

import ast
import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from re import _constants as ops  # type: ignore[attr-defined]  # The library has no public parser of patterns.
from re import _parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOURCES = sorted(file for room in ("operator", "trainer") for file in (ROOT / room).rglob("*.py"))

SHORT, LONG = 4 << 10, 32 << 10
LONGEST_SECONDS = 0.25
"""For a text of LONG bytes: ten times what the slowest of our patterns takes."""
NOTICEABLE_SECONDS = 0.01
"""What takes less says nothing about its growth."""
STEEPEST = 3
"""How many times longer LONG may take than as much in texts of SHORT bytes; if it were quadratic, 8."""
WORST = 3
"""As many of the short texts are tried again as long ones."""
FEW = 15
"""Of a pattern with so few parts, each sequence of parts is repeated, and each alternative is tried;"""
BLOCKS = 220
"""of others as many as these, the shorter ones."""
TRIES = 8
"""The quickest counts: others want the cores, too."""
SEARCH = frozenset({"search"})
NO_MATCH = "\n\0"
"""An end that hardly any pattern takes."""

FUNCTIONS = ("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
COMPUTED = {
    "api/secrecy.py": "the shapes, of which one pattern here has all, and names of files, which are short",
    "api/rules/checks.py": "NAME_PATTERN, one of the API's, which are in the CRD",
    "api/validation.py": "those of the API's fields, which are in the CRD",
    "history/secret_values.py": "values of the job's own variables, each literally",
}
"""Where a pattern is computed, by the end of the file's path, and why nobody else can choose it."""


@dataclass(frozen=True)
class Found:
    """A pattern and how it is used."""

    where: str
    pattern: re.Pattern[Any]
    uses: frozenset[str]


class TooLong(BaseException):
    """Not an Exception: nothing between may catch it."""


def constants(tree: ast.Module) -> dict[str, Any]:
    """What a module's assignments give that need nothing but `re` and each other."""
    known: dict[str, Any] = {"re": re}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(
            ("ddpjob_operator.api.", "ddpjob_operator.text")
        ):
            room = import_module(statement.module or "")
            known |= {one.name: text for one in statement.names if isinstance(text := getattr(room, one.name), str)}
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                known[statement.targets[0].id] = evaluated(statement.value, known)
            except Exception:  # noqa: BLE001  Whatever it needs is not a pattern's part.
                continue
    return known


def evaluated(what: ast.expr, known: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(what), "", "eval"), dict(known))  # It is our own source.


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, str]]:
    """Calls such as `one.search(...)`, with both words."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield node, node.func.value.id, node.func.attr


def found() -> list[Found]:
    trees = {file: ast.parse(file.read_text()) for file in SOURCES}
    uses: dict[str, set[str]] = {}
    for tree in trees.values():
        for _, name, method in calls(tree):
            if method in FUNCTIONS:
                uses.setdefault(name, set()).add(method)
    return [one for file, tree in trees.items() for one in in_module(file, tree, uses)]


def of_the_api() -> list[Found]:
    """Those of the API's fields, which are tried with Python, too: in local mode, and by whoever reads a job."""
    schema = yaml.load((ROOT / "deploy/crd.yaml").read_text(), yaml.CSafeLoader)
    patterns = sorted({text for text in patterns_in(schema) if isinstance(text, str)})
    return [Found(f"deploy/crd.yaml:{text}", re.compile(text.replace("$", r"\Z")), SEARCH) for text in patterns]


def patterns_in(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield schema.get("pattern")
    if isinstance(schema, dict | list):
        for inside in schema.values() if isinstance(schema, dict) else schema:
            yield from patterns_in(inside)


def in_module(file: Path, tree: ast.Module, uses: dict[str, set[str]]) -> Iterator[Found]:
    known = constants(tree)
    names = {value: name for name, value in known.items() if isinstance(value, re.Pattern)}
    for call, module, function in calls(tree):
        if module != "re" or function not in FUNCTIONS:
            continue
        where = f"{file.relative_to(ROOT)}:{call.lineno}"
        flags = [one.value for one in call.keywords if one.arg == "flags"]
        flags += call.args[1:2] if function == "compile" else []
        try:
            pattern = re.compile(*(evaluated(one, known) for one in (call.args[0], *flags)))
        except NameError:
            assert file.as_posix().endswith(tuple(COMPUTED)), f"{where}: who chooses this pattern?"
            continue
        used = uses.get(names.get(pattern, ""), SEARCH) if function == "compile" else {function}
        yield Found(where, pattern, frozenset(used))


Tokens = Sequence[tuple[Any, Any]]


def parts(tokens: Tokens, choice: int | None = None) -> list[str]:
    """Texts for the parts of a pattern, one after another: together they are about what it matches.

    `choice`: which of alternatives; None: all, one after another.
    """
    texts: list[str] = []
    literal = False
    for op, value in tokens:
        if op is ops.LITERAL and literal:
            texts[-1] += chr(value)
        elif op in LEAVES:
            texts.append(LEAVES[op](value))
        else:
            texts += [part for inside in insides(op, value, choice) for part in parts(inside, choice)]
        literal = op is ops.LITERAL
    return [text for text in texts if text]


def insides(op: Any, value: Any, choice: int | None) -> list[Tokens]:
    """What stands in a group, a repetition, or between bars."""
    if op is ops.BRANCH:
        return list(value[1]) if choice is None else [value[1][choice % len(value[1])]]
    if op in {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}:
        least, _, tokens = value
        return [tokens] * max(1, min(least, 20))
    if op is ops.SUBPATTERN:
        return [value[3]]
    if op is ops.ASSERT:
        return [value[1]]
    return [value] if op is ops.ATOMIC_GROUP else []


def most_alternatives(tokens: Tokens) -> int:
    counts = [len(value[1]) for op, value in tokens if op is ops.BRANCH]
    inner = [
        most_alternatives(inside) for op, value in tokens if op not in LEAVES for inside in insides(op, value, None)
    ]
    return max([0, *counts, *inner])


def one_of(choices: Tokens) -> str:
    """A letter of a class, or one outside."""
    pattern = re.compile(f"[{''.join(in_class(choice) for choice in choices)}]")
    likely = "a1 \n_.:=/,;\"'-(["
    return next(letter for letter in likely + "".join(map(chr, range(256))) if pattern.match(letter))


def in_class(choice: tuple[Any, Any]) -> str:
    op, value = choice
    if op is ops.NEGATE:
        return "^"
    if op is ops.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return CATEGORIES[value] if op is ops.CATEGORY else re.escape(chr(value))


CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d",
    ops.CATEGORY_NOT_DIGIT: r"\D",
    ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S",
    ops.CATEGORY_WORD: r"\w",
    ops.CATEGORY_NOT_WORD: r"\W",
}
LEAVES: dict[Any, Callable[[Any], str]] = {
    ops.LITERAL: chr,
    ops.NOT_LITERAL: lambda value: "a" if value != ord("a") else "b",
    ops.ANY: lambda _: "a",
    ops.IN: one_of,
    ops.AT: lambda where: " " if where in {ops.AT_BOUNDARY, ops.AT_NON_BOUNDARY} else "\n",
}


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Beginnings, and blocks to repeat, of the pattern's own parts."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tokens = _parser.parse(text, pattern.flags & ~re.UNICODE)
    choices = [None, *range(most_alternatives(tokens) if len(parts(tokens, 0)) <= FEW else 0)]
    every = (one for choice in choices for one in blocks(parts(tokens, choice)))
    yield from dict.fromkeys(every)


def blocks(own: list[str]) -> Iterator[tuple[str, str]]:
    """Parts that follow each other, with and without those before them."""
    longest = len(own) if len(own) <= FEW else max(2, BLOCKS // len(own))
    for start in range(len(own)):
        for end in {*range(start + 1, min(len(own), start + longest) + 1), len(own)}:
            block = "".join(own[start:end])
            yield from (("", block), ("".join(own[:start]), block))


def seconds(one: Found, parts: tuple[str, str], size: int, times: int = 1) -> float:
    """How long it takes with a text of this size; not much longer than LONGEST_SECONDS of CPU time."""
    before, block = parts
    text: Any = before + block * (size // len(block)) + NO_MATCH
    text = text if isinstance(one.pattern.pattern, str) else text.encode("latin-1")
    signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, 2 * LONGEST_SECONDS)
    began = time.thread_time()
    try:
        for _ in range(times):
            for use in one.uses:
                tried(one.pattern, use, text)
    except TooLong:
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.thread_time() - began


def interrupt(_: int, __: FrameType | None) -> None:
    raise TooLong


def tried(pattern: re.Pattern[Any], use: str, text: Any) -> None:
    if use in {"match", "fullmatch", "search"}:
        getattr(pattern, use)(text)
    else:
        pattern.findall(text)


def slow(one: Found) -> str:
    """What is wrong with it; empty if nothing is."""
    times = sorted(((seconds(one, text, SHORT), text) for text in hostile(one.pattern)), reverse=True)
    return next((said for _, text in islice(times, WORST) if (said := slow_with(one, text))), "")


def slow_with(one: Found, text: tuple[str, str]) -> str:
    """It is quick if it ever was: as much in short texts takes about as long, whoever wants the cores."""
    long, short = math.inf, math.inf
    for _ in range(TRIES):
        long = min(long, seconds(one, text, LONG))
        short = min(short, seconds(one, text, SHORT, times=LONG // SHORT))
        if long < LONGEST_SECONDS and (long < NOTICEABLE_SECONDS or long < STEEPEST * short):
            return ""
    return f"{text!r}: {long * 1000:.1f} ms for 32 KiB, {short * 1000:.1f} ms for eight times 4 KiB"


@pytest.mark.parametrize("one", [*found(), *of_the_api()], ids=lambda one: one.where)
def test_a_pattern_takes_time_in_proportion_to_the_text(one: Found) -> None:
    assert not slow(one)
