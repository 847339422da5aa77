"""What counts as a W3C trace context."""

import pytest
from ddpjob_operator.api.trace_context import LONGEST_STATE, TRACEPARENT, TRACESTATE, trace_context

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PARENT = f"00-{IDS}-01"

PARENTS = {
    PARENT: True,
    f"00-{IDS}-00": True,
    f"cc-{IDS}-01-of-the-future": True,
    f"cc-{IDS}-01": True,
    f"{PARENT}-more": False,
    f"{PARENT}-": False,
    f"ff-{IDS}-01": False,
    PARENT.upper(): False,
    f"00-{'0' * 32}-00f067aa0ba902b7-01": False,
    f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01": False,
    f"{PARENT}\n": False,
    f" {PARENT}": False,
    f"cc-{IDS}-01-{'a' * 201}": False,
    f"00-{IDS}": False,
    "": False,
}
STATES = {
    "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE": True,
    "a=1 , \t b=2,": True,
    "fw529a3039@dt=FfffffffffB": True,
    "0t/_*-@s=$(HOME)": True,
    "a= b": True,
    f"{'k' * 255}={'v' * 256}": True,
    ",".join(f"k{number}=1" for number in range(32)): True,
    ",".join(f"k{number}=1" for number in range(33)): False,
    f"a={'v' * 254},b={'v' * 253}": True,  # 512 characters.
    f"a={'v' * 254},b={'v' * 254}": False,
    f"{'k' * 256}={'v' * 256}": False,
    f"a={'v' * 257}": False,
    "a=1,a=2": False,
    "A=1": False,
    "0a=1": False,
    "a=": False,
    "a": False,
    "a=1=2": False,
    f"a@{'s' * 15}=1": False,
    "a=ü": False,
    "a=1\nb=2": False,
    " , ": False,
    "": False,
}


@pytest.mark.parametrize(("parent", "valid"), PARENTS.items())
def test_a_parent_has_a_known_form_and_ids_that_are_not_zero(parent: str, *, valid: bool) -> None:
    assert trace_context({TRACEPARENT: parent, "other": "x"}) == ({TRACEPARENT: parent} if valid else {})


@pytest.mark.parametrize(("state", "valid"), STATES.items())
def test_a_state_is_a_list_of_members_with_different_keys(state: str, *, valid: bool) -> None:
    assert len(state) <= LONGEST_STATE or not valid
    known = {TRACEPARENT: PARENT}
    assert trace_context({TRACEPARENT: PARENT, TRACESTATE: state}) == (
        known | {TRACESTATE: state} if valid else known
    )


def test_a_state_without_a_parent_does_not_count() -> None:
    assert trace_context({TRACESTATE: "a=1"}) == {}


@pytest.mark.parametrize("wrong", [None, 7, ["a"], {}, "\ud800"])
def test_whatever_somebody_writes_is_no_context(wrong: object) -> None:
    assert trace_context({TRACEPARENT: wrong, TRACESTATE: wrong}) == {}
    assert trace_context({TRACEPARENT: PARENT, TRACESTATE: wrong}) == {TRACEPARENT: PARENT}
