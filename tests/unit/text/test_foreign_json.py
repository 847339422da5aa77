"""JSON that others have written is bounded in its depth, on both sides of the contract."""

from collections.abc import Callable
from typing import Any

import pytest
from ddpjob_operator.text import foreign_json
from ddpjob_rank import bounded_json

Parser = Callable[[str | bytes], Any]
PARSERS = pytest.mark.parametrize("parsed", [foreign_json.parsed, bounded_json.parsed], ids=["operator", "rank"])
MOST = foreign_json.MOST_DEPTH


def nested(form: str, levels: int) -> str:
    """A text with so many levels."""
    if form == "lists":
        return "[" * levels + "]" * levels
    return '{"a":' * levels + "1" + "}" * levels


def test_both_sides_have_the_same_bound() -> None:
    assert bounded_json.MOST_DEPTH == MOST


@PARSERS
@pytest.mark.parametrize("form", ["lists", "objects"])
def test_what_is_nested_too_deeply_is_a_value_error_whatever_the_parsers_own_limit(parsed: Parser, form: str) -> None:
    for levels in (1, MOST):
        assert parsed(nested(form, levels)) == parsed(nested(form, levels).encode())
    for levels in (MOST + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            parsed(nested(form, levels))


@PARSERS
@pytest.mark.parametrize("text", ["", "{", "nonsense", "9" * 5000])
def test_what_is_no_json_is_a_value_error_too(parsed: Parser, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (the parser's own words)
        parsed(text)


@PARSERS
def test_brackets_in_texts_and_many_elements_are_no_depth(parsed: Parser) -> None:
    assert parsed('["' + "[" * 1000 + '"]') == ["[" * 1000]
    assert parsed("[" + "{}," * 1000 + "[]]") == [*[{}] * 1000, []]


@pytest.mark.parametrize("text", ["[]", "5", "null", "[" * 100_000, "no"])
def test_whoever_expects_an_object_gets_none_instead_of_anything_else(text: str) -> None:
    assert foreign_json.parsed_object(text) is None


def test_an_object_is_an_object() -> None:
    assert foreign_json.parsed_object(b'{"kind": "Over"}') == {"kind": "Over"}
