"""What a secret looks like."""

import pytest
from ddpjob_operator.api.secrecy import SHAPES, suspicions
from hypothesis import Phase, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(("kind", "_", "pattern"), SHAPES, ids=[f"{kind}: {hint}" for kind, hint, _ in SHAPES])
@given(data=st.data())
@settings(max_examples=5, phases=[Phase.generate])  # To shrink a text of such a length takes minutes.
def test_whatever_has_the_shape_of_a_secret_is_found_by_its_hint(
    kind: str, _: str, pattern: str, data: st.DataObject
) -> None:
    secret = data.draw(st.from_regex(pattern, fullmatch=True))
    assert (2, kind) in suspicions(f"\nlogin {secret}", "train.py")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("token = 'gpt2xl1558m'", False),
        ("token = 'gpt2xl1558m0'", True),
        ("token = 'gpt2-xl-of-openai'", False),
        ("token = 'generatively'", False),
        ("token = '151643151643'", False),
        ("password = 'hunter2'", True),
        ("password = 'correct-horse-battery'", False),
    ],
)
def test_a_value_with_a_telling_name_is_a_secret_if_a_run_of_its_letters_and_digits_is_made_up(
    line: str,
    found: bool,  # noqa: FBT001  A table.
) -> None:
    assert bool([*suspicions(line, "train.py")]) is found
