"""How NCCL passes data, and when that is worth a warning."""

import pytest
from ddpjob_supervisor.gpu.nccl_words import NcclWords
from ddpjob_supervisor.gpu.transport import fell_back, settings, transport_of

from .transcripts import transcript


def heard(*lines: str) -> NcclWords:
    words = NcclWords()
    for line in lines:
        words.hear(line)
    return words


SOCKET = "worker-0:53:271 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[0] [receive] via NET/Socket/0"


@pytest.mark.parametrize(
    ("lines", "transport"),
    [
        ([], None),
        (transcript("transport-sockets"), "network Socket"),
        (transcript("transport-infiniband"), "NET/IB, P2P"),
        ([*transcript("transport-sockets"), SOCKET], "NET/Socket"),
        (["a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"], "SHM"),
    ],
)
def test_the_ways_are_named_those_with_most_channels_first(lines: list[str], transport: str | None) -> None:
    assert transport_of(heard(*lines)) == transport


def test_sockets_are_worth_a_warning_where_the_machine_has_infiniband() -> None:
    assert "over sockets, although this machine has mlx5_0:" in str(fell_back(heard(SOCKET), ["mlx5_0"]))
    assert fell_back(heard(SOCKET), []) is None
    assert fell_back(heard(*transcript("transport-infiniband")), ["mlx5_0"]) is None


@pytest.mark.parametrize(
    "said", [{"NCCL_DEBUG": "WARN"}, {"NCCL_DEBUG_SUBSYS": "COLL"}, {"NCCL_DEBUG_FILE": "/logs"}]
)
def test_nccl_is_asked_for_the_lines_of_its_initialization_unless_somebody_has_said_what_it_tells(
    said: dict[str, str],
) -> None:
    asked = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": "/run/0.nccl"}
    assert settings("/run/0.nccl", {"NCCL_IB_DISABLE": "1"}) == asked
    assert settings("/run/0.nccl", said) == {}
