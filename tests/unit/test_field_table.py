"""Every field of the CRD stands in the table of what follows from a change of it, as the rules have it."""

import pytest
from ddpjob_operator.api.rules import FIXED

from tests.faults.fields.leaves import Leaf, leaves
from tests.faults.fields.table import FIELDS, Change, When

OURS = [leaf for leaf in leaves() if not leaf.foreign]
of_ours = pytest.mark.parametrize("leaf", OURS, ids=lambda leaf: leaf.path)


def when_by_the_rules(path: str) -> When:
    """When the CRD lets a field change: rules about changes stand at what is directly in spec."""
    top = path.split(".", maxsplit=1)[0].removesuffix("[]")
    whether = [rule.while_suspended for rule in FIXED if rule.field == top]
    if not whether:
        return When.ALWAYS
    return When.WHILE_SUSPENDED if all(whether) else When.NEVER


def test_every_field_of_the_crd_is_told_and_no_other() -> None:
    assert set(FIELDS) == {leaf.path for leaf in OURS}


@of_ours
def test_a_field_changes_when_the_crd_lets_it(leaf: Leaf) -> None:
    assert FIELDS[leaf.path].when is when_by_the_rules(leaf.path)


@of_ours
def test_a_field_has_an_end_in_both_directions(leaf: Leaf) -> None:
    field, schema = FIELDS[leaf.path], leaf.schema
    by_schema = "enum" in schema or schema.get("type") == "boolean" or {"minimum", "maximum"} <= set(schema)
    by_table = bool(field.wrong) and isinstance(field.least, type(field.greatest))
    assert by_schema or by_table or "maxItems" in schema, "one that has none overflows somewhere"


@of_ours
def test_what_follows_from_each_change_is_told_or_it_is_refused(leaf: Leaf) -> None:
    field = FIELDS[leaf.path]
    untold = {change for change, follows in zip(Change, field.after, strict=True) if follows is None}
    its_own_test = {Change.GREATEST} if leaf.path == "nodes" else set()
    never = set(Change) if field.when is When.NEVER else set()
    assert untold == set(field.refused) | its_own_test | never


@of_ours
def test_what_has_to_be_there_cannot_be_removed(leaf: Leaf) -> None:
    assert not leaf.required or FIELDS[leaf.path].refused[Change.REMOVED] == "Required value"
