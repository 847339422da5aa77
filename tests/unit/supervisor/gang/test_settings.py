"""A supervisor's place in its gang, as its environment tells it."""

import re
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.limits import JOINING_SECONDS
from ddpjob_supervisor.gang.settings import read_settings

MASTER = {"MASTER_ADDR": "job-0", "MASTER_PORT": "29500"}
RANK = {**MASTER, "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}
NODE = {**MASTER, "NNODES": "4", "NODE_RANK": "1", "NPROC_PER_NODE": "2", "WORLD_SIZE": "8"}
ALONE = {**MASTER, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
POD = {
    **RANK,
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "NNODES": "8",
    "NODE_RANK": "3",
    "NPROC_PER_NODE": "1",
}


def one_of_two(rank: int) -> dict[str, str]:
    """A process of one of three nodes, with two of them each."""
    node = {"NNODES": "3", "NODE_RANK": str(rank // 2), "NPROC_PER_NODE": "2"}
    return {
        **MASTER,
        **node,
        "RANK": str(rank),
        "WORLD_SIZE": "6",
        "LOCAL_RANK": str(rank % 2),
        "LOCAL_WORLD_SIZE": "2",
    }


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({}, (0, 1, 1)),
        (ALONE, (0, 1, 1)),
        (NODE, (1, 4, 2)),
        (POD, (3, 8, 1)),
        *((one_of_two(rank), (rank // 2, 3, 2)) for rank in range(6)),
    ],
    ids=[
        *("nothing", "one process", "a node of several", "a pod of one process"),
        *(f"process {rank} of three nodes" for rank in range(6)),
    ],
)
def test_the_environment_says_which_node_it_is(env: dict[str, str], place: tuple[int, int, int]) -> None:
    settings = read_settings(env)
    assert (settings.node, settings.nodes, settings.processes) == place


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({**RANK, "TORCHELASTIC_RUN_ID": "none"}, "torchrun has started this supervisor, which starts the ranks"),
        ({**POD, "TORCHELASTIC_RUN_ID": "none"}, "torchrun has started this supervisor, which starts the ranks"),
        (RANK, "RANK is 3 of 8, but NODE_RANK and NNODES are not both set: set them to name this supervisor's node"),
        ({**RANK, "NNODES": "1"}, "RANK is 3 of 8, but NODE_RANK and NNODES are not both set"),
    ],
    ids=["torchrun", "torchrun in a pod", "only a rank", "without the node's"],
)
def test_no_supervisor_takes_itself_for_rank_0_since_nobody_told_it_better(env: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        read_settings(env)


@pytest.mark.parametrize("peer", ["job-0", "job-0:", ":29502", "job-0:port", "job-0:0", "job-0:70000"])
def test_a_peer_that_is_no_address_is_refused_by_name(peer: str) -> None:
    with pytest.raises(ConfigError, match=rf"^DDPJOB_PEERS: '{peer}' is not host:port: it must be addresses"):
        read_settings({**POD, "DDPJOB_PEERS": f"10.0.0.1:29502, {peer}"})


def test_peers_are_addresses_of_either_version() -> None:
    peers = ("10.0.0.1:29502", "[fd00::1]:29502", "job-0.job:29502")
    assert read_settings({**POD, "DDPJOB_PEERS": ", ".join(peers)}).peers == peers


@pytest.mark.parametrize(
    ("env", "port"),
    [
        (NODE, 29502),
        ({**NODE, "MASTER_PORT": "20000"}, 20002),
        ({**NODE, "MASTER_PORT": "65535"}, 65533),
        ({**NODE, "MASTER_PORT": "20000", "DDPJOB_CONTROL_PORT": "7"}, 7),
        ({**NODE, "MASTER_PORT": "20000", "DDPJOB_STATUS_PORT": "29501"}, 29502),
    ],
)
def test_without_an_operator_supervisors_meet_beside_the_master(env: dict[str, str], port: int) -> None:
    settings = read_settings(env)
    assert settings.control_port == port
    assert settings.peers == (f"job-0:{port}",)
    assert (settings.joining_seconds is None) == settings.in_a_job == ("DDPJOB_STATUS_PORT" in env)


@pytest.mark.parametrize("attached", [False, True])
def test_each_supervisor_knows_whether_a_rank_has_a_terminal(*, attached: bool) -> None:
    assert read_settings({**POD, **({"DDPJOB_ATTACH": "0"} if attached else {})}).attached is attached


VARIABLES: dict[str, tuple[str, str, object]] = {
    "UID": ("uid", "an-uid", "an-uid"),
    "INCARNATION": ("incarnation", "3", 3),
    "ATTEMPT": ("attempt", "4", 4),
    "CONTROL_PORT": ("control_port", "4711", 4711),
    "STATUS_PORT": ("status_port", "4712", 4712),
    "LISTEN_ADDR": ("listen", "10.0.0.7", "10.0.0.7"),
    "STALL_TIMEOUT_SECONDS": ("stall_timeout", "90", 90),
    "FIRST_STEP_TIMEOUT_SECONDS": ("first_step_timeout", "900", 900),
    "IMAGE": ("image", "trainer:1", "trainer:1"),
    "LAST_INCIDENT": ("incident", "{}", "{}"),
    "CHECKPOINT_EVERY_STEPS": ("checkpoint_every_steps", "50", 50),
    "CHECKPOINT_EVERY_SECONDS": ("checkpoint_every_seconds", "60", 60),
    "PREFLIGHT": ("preflight", "Full", "Full"),
    "GRACE_PERIOD_SECONDS": ("grace", "120", 120),
    "TOPOLOGY_DOMAIN_FILE": ("domain_file", "/run/domain", Path("/run/domain")),
    "CHECKPOINT_REQUEST_FILE": ("checkpoint_request_file", "/run/request", Path("/run/request")),
}
"""The field of the settings, what a pod has in this variable, and what the supervisor makes of it."""


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_of_a_pod_has_its_own_meaning_and_a_default(name: str) -> None:
    field, text, value = VARIABLES[name]
    said, unsaid = read_settings({**POD, f"DDPJOB_{name}": text}), read_settings(POD)
    assert getattr(said, field) == value
    assert getattr(unsaid, field) != value


def test_what_a_pod_does_not_say_is_not_so_or_what_the_page_says() -> None:
    unsaid = read_settings(POD)
    assert (unsaid.uid, unsaid.incarnation, unsaid.attempt, unsaid.image, unsaid.incident) == ("", 0, 0, "", "")
    assert (unsaid.stall_timeout, unsaid.first_step_timeout, unsaid.code_revision, unsaid.listen) == (None,) * 4
    assert (unsaid.domain_file, unsaid.checkpoint_request_file, unsaid.idle_seconds) == (None,) * 3
    assert (unsaid.grace, unsaid.limits.restarts, unsaid.limits.window_seconds) == (30, 0, 3600)
    assert (unsaid.in_a_job, unsaid.joining_seconds) == (False, JOINING_SECONDS)
    assert read_settings({**POD, "DDPJOB_STATUS_PORT": "1"}).joining_seconds is None


def test_the_restarts_of_the_command_line_win() -> None:
    env = {**POD, "DDPJOB_IN_PLACE_RESTARTS": "3", "DDPJOB_RESTART_WINDOW_SECONDS": "60"}
    assert [read_settings(env, most).limits.restarts for most in (None, 0, 5)] == [3, 0, 5]
    assert read_settings(env).limits.window_seconds == 60


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("Auto", None), ("", None), ("\u00b2", None), ("-1", None)])
def test_an_interval_that_is_no_number_is_left_to_the_program(text: str, number: int | None) -> None:
    assert read_settings({**POD, "DDPJOB_CHECKPOINT_EVERY_STEPS": text}).checkpoint_every_steps == number


@pytest.mark.parametrize(("archive", "revision"), [(None, None), ("/code.zip", 5)])
def test_code_has_a_revision_where_it_was_sent(archive: str | None, revision: int | None) -> None:
    env = {**POD, "DDPJOB_CODE_REVISION": "5"} | ({"DDPJOB_CODE_ARCHIVE": archive} if archive else {})
    assert read_settings(env).code_revision == revision
