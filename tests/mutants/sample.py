"""Draws the sample: code lines by chance, the same ones for the same seed, and for each one fault that fits there."""

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

from .mutant import Mutant, between

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "operator/ddpjob_operator",
    "trainer/ddpjob",
    "trainer/ddpjob_rank",
    "trainer/ddpjob_supervisor",
    "trainer/ddpjob_trainer",
)

# Of cosmic-ray's some two hundred, those that are hard to notice: that `a ** b` is not `a + b`, any test knows.
OPERATORS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Div",
    "ReplaceBinaryOperator_Mod_Div",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "ZeroIterationForLoop",
)

Span = tuple[tuple[int, int], tuple[int, int]]
Choice = tuple[str, Operator, int]
"""An operator's name, the operator, and which of its places in the file."""


class DeleteStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types.
    """Leaves out what a line does to something else: cosmic-ray itself has nothing that takes away.

    A plain name's assignment stays: without it the name is unknown, which any test notices.
    """

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """One for a statement that does something."""
        if node.type == "simple_stmt" and _acts(node.children[0]):
            yield node.start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  (there is only one)
        """The same with `pass` in its place."""
        statement = node.children[0]
        node.children[0] = parso.parse(f"{statement.get_first_leaf().prefix}pass")
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: they are for cosmic-ray's own tests."""
        return ()


def _acts(statement: Any) -> bool:
    if statement.type != "expr_stmt":
        return statement.type in {"atom_expr", "raise_stmt"}
    target, assignment = statement.children[:2]
    return target.type == "atom_expr" or getattr(assignment, "value", "=") != "="


def sample(count: int, seed: int) -> list[Mutant]:
    """So many mutants, at most one for each line, evenly over the lines of code."""
    chance = random.Random(seed)
    everywhere = [(file, choices) for file in _files() for choices in _choices(file)]
    chance.shuffle(everywhere)
    drawn: list[Mutant] = []
    for file, choices in everywhere:
        chance.shuffle(choices)
        mutant = _first_that_compiles(len(drawn) + 1, file, choices)
        drawn += [mutant] if mutant else []
        if len(drawn) == count:
            break
    return drawn


def _files() -> list[Path]:
    return sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def _choices(file: Path) -> list[list[Choice]]:
    """What can be done to a file, by its lines."""
    source = file.read_text(encoding="utf-8")
    annotations = list(_annotations(ast.parse(source)))
    nodes = list(ast_nodes(parso.parse(source)))
    operators = {"DeleteStatement": DeleteStatement()} | {name: get_operator(f"core/{name}")() for name in OPERATORS}
    found: defaultdict[int, list[Choice]] = defaultdict(list)
    for name, operator in operators.items():
        spans = [span for node in nodes for span in operator.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(spans):
            if not any(first <= start and end <= last for first, last in annotations):
                found[start[0]].append((name, operator, occurrence))
    return [found[line] for line in sorted(found)]


def _annotations(tree: ast.Module) -> Iterator[Span]:
    """Where types stand: what is done to them, mypy finds."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (there := getattr(node, name, None)) is not None:
                yield (there.lineno, there.col_offset), (there.end_lineno, there.end_col_offset)


def _first_that_compiles(number: int, file: Path, choices: Sequence[Choice]) -> Mutant | None:
    source = file.read_text(encoding="utf-8")
    for name, operator, occurrence in choices:
        with suppress(SyntaxError, AttributeError):  # The second: cosmic-ray cannot replace `except module.Error`.
            mutated = mutate_code(source, operator, occurrence)
            if ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source)):
                return between(number, file.relative_to(ROOT).as_posix(), name, source, mutated)
    return None
