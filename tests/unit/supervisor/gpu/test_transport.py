"""How NCCL passes data, and when that is worth a warning."""

from pathlib import Path

import pytest
from ddpjob_supervisor.gpu.nccl_words import NcclWords
from ddpjob_supervisor.gpu.transport import fell_back, infiniband, transport_of

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


def test_sockets_are_worth_a_warning_where_the_machine_has_infiniband(tmp_path: Path) -> None:
    (tmp_path / "mlx5_0").mkdir()
    devices = infiniband(tmp_path)
    assert "over sockets, although this machine has mlx5_0:" in str(fell_back(heard(SOCKET), devices))
    assert fell_back(heard(SOCKET), infiniband(tmp_path / "none")) is None
    assert fell_back(heard(*transcript("transport-infiniband")), devices) is None
