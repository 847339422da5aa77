"""How what the operator has packed into one variable comes to its names."""

import json

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.parsing import unpack_variables

PEERS = {"DDPJOB_PEERS": "10.0.0.1:29502", "DDPJOB_UID": "a-uid"}

UNPACKED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "none packed, as by an older operator": (PEERS, PEERS),
    "an empty object": ({"DDPJOB_SUPERVISOR": "{}"}, {}),
    "all packed": ({"DDPJOB_SUPERVISOR": json.dumps(PEERS)}, PEERS),
    "others beside them": ({"RANK": "1", "DDPJOB_SUPERVISOR": json.dumps(PEERS)}, {"RANK": "1", **PEERS}),
    "one also set by its name, which wins": (
        {"DDPJOB_UID": "its own", "DDPJOB_SUPERVISOR": json.dumps(PEERS)},
        {**PEERS, "DDPJOB_UID": "its own"},
    ),
    "one of others, for which the image has a value of its own": (
        {"RANK": "7", "DDPJOB_SUPERVISOR": '{"RANK":"1"}'},
        {"RANK": "1"},
    ),
    "one that only a newer operator knows": ({"DDPJOB_SUPERVISOR": '{"DDPJOB_NEW":"1"}'}, {"DDPJOB_NEW": "1"}),
}


@pytest.mark.parametrize(("given", "then"), UNPACKED.values(), ids=UNPACKED)
def test_packed_variables_come_to_their_names(given: dict[str, str], then: dict[str, str]) -> None:
    env = dict(given)
    unpack_variables(env)
    assert env == then


@pytest.mark.parametrize("packed", ["", "{", "DDPJOB_UID=a-uid", "[]", "null", '{"DDPJOB_STATUS_PORT": 29501}'])
def test_anything_else_is_refused(packed: str) -> None:
    with pytest.raises(ConfigError, match=r"^DDPJOB_SUPERVISOR must be a JSON object whose values are strings, not "):
        unpack_variables({"DDPJOB_SUPERVISOR": packed})
