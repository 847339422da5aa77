"""What a supervisor makes a rank tell, and what it does with that."""

import asyncio
import pickle
from pathlib import Path

import pytest
from ddpjob_rank.environment import Env
from ddpjob_rank.machine.network import Fabric
from ddpjob_supervisor.watch import last_words
from ddpjob_supervisor.watch.last_words import LastWords

from .gpu.test_flight_recorder import ENTRY
from .gpu.transcripts import transcript


def env_of(tmp_path: Path, **more: str) -> dict[str, str]:
    return {Env.HEARTBEAT: str(tmp_path / "0"), Env.RANK: "3", Env.ATTEMPT: "2", Env.RUN_DIR: str(tmp_path), **more}


def says(file: Path, *lines: str) -> None:
    """As NCCL would."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def listens(env: dict[str, str]) -> dict[str, str]:
    async def play() -> dict[str, str]:
        words = LastWords(env)
        await words.finish()
        return words.env

    return asyncio.run(play())


def test_nccl_is_heard_where_it_is_told_to_speak_and_a_users_file_stays(tmp_path: Path) -> None:
    assert listens(env_of(tmp_path, NCCL_DEBUG="INFO"))["NCCL_DEBUG_FILE"] == str(tmp_path / "0.stderr")
    assert "NCCL_DEBUG_FILE" not in listens(env_of(tmp_path, NCCL_DEBUG_SUBSYS="NET", DDPJOB_BACKEND="nccl"))
    assert "NCCL_DEBUG_FILE" not in listens(env_of(tmp_path, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE="/logs/nccl"))


@pytest.mark.parametrize(("backend", "gpu", "asked"), [("nccl", "", True), ("", "made up", True), ("", "", False)])
def test_nccl_is_asked_for_its_transport_where_there_may_be_nccl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, gpu: str, *, asked: bool
) -> None:
    device = tmp_path / "nvidiactl"
    device.write_text("") if gpu else None
    monkeypatch.setattr(last_words, "DEVICE", device)
    env = listens(env_of(tmp_path, **({"DDPJOB_BACKEND": backend} if backend else {})))
    assert ({"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"} <= env.keys()) is asked


def test_of_what_nccl_is_asked_for_only_its_warnings_come_into_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = "H20-GPU-06:4015539:4015652 [0] transport/net_ib.cc:42 NCCL WARN made up"

    async def play() -> str | None:
        words = LastWords(env_of(tmp_path, DDPJOB_BACKEND="nccl"))
        says(Path(words.env["NCCL_DEBUG_FILE"]), *transcript("transport-infiniband"), "", warning)
        await words.finish()
        return words.transport()

    assert asyncio.run(play()) == "NET/IB, P2P"
    assert capsys.readouterr().err == f"{warning}\n"


def test_the_flight_recorder_is_told_by_the_names_of_the_pytorch_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_words, "_torch", lambda: "2.6.0+cu124")
    env = listens(env_of(tmp_path))
    assert (env["TORCH_NCCL_TRACE_BUFFER_SIZE"], env["TORCH_NCCL_DUMP_ON_TIMEOUT"]) == ("2000", "1")
    assert env["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == env["TORCH_FR_DUMP_TEMP_FILE"]


def test_a_gang_on_gloo_records_for_the_one_who_asks_it_and_leaves_no_dump(tmp_path: Path) -> None:
    assert listens(env_of(tmp_path, DDPJOB_BACKEND="gloo")) == {"TORCH_FR_BUFFER_SIZE": "2000"}
    assert listens(env_of(tmp_path))["TORCH_FR_DUMP_TEMP_FILE"] == str(tmp_path / "0.trace-")


@pytest.mark.parametrize("said", ["timeout-torch-2.7", "timeout-of-another-rank"])
def test_the_recording_of_a_rank_that_waited_or_was_told_of_it_is_counted_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv(Env.RUN_DIR, str(tmp_path))
    monkeypatch.delenv(Env.CHECKPOINT_DIR, raising=False)
    dump = pickle.dumps({"entries": [ENTRY | {"collective_seq_id": 460_632}]})

    async def play() -> dict[str, int]:
        words = LastWords(env_of(tmp_path))
        for line in transcript(said):
            words.words.hear(line)
        (tmp_path / "0.trace-3").write_bytes(dump)
        return (await words.finish()).begun

    assert asyncio.run(play()) == {"0 nccl": 460_632}
    assert (tmp_path / "stalls" / "attempt-2" / "trace-3").read_bytes() == dump


def test_a_transport_is_logged_once_on_each_node_when_it_is_known_and_sockets_beside_infiniband_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(last_words, "fabric", lambda: Fabric(("mlx5_0",)))

    async def play() -> None:
        told: set[str] = set()
        ranks = [LastWords(env_of(tmp_path), told) for _ in range(2)]
        assert ranks[0].transport() is None
        for rank in ranks:
            rank.words.hear("a:1:2 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[0] [send] via NET/Socket/0")
        assert [rank.transport() for _ in range(3) for rank in ranks] == ["NET/Socket"] * 6
        for rank in ranks:
            await rank.finish()

    asyncio.run(play())
    said = capsys.readouterr()
    assert said.out == "rank 3: NCCL uses NET/Socket\n"
    assert said.err.startswith("warning: NCCL sends data over sockets, although this machine has mlx5_0:")
