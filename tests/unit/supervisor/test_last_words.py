"""What a supervisor makes a rank tell, and what it does with that."""

import asyncio
import pickle
from pathlib import Path

import pytest
from ddpjob_rank.environment import Env
from ddpjob_supervisor.watch import last_words
from ddpjob_supervisor.watch.last_words import LastWords

from .gpu.test_flight_recorder import ENTRY
from .gpu.transcripts import transcript


def env_of(tmp_path: Path, **more: str) -> dict[str, str]:
    return {Env.HEARTBEAT: str(tmp_path / "0"), Env.RANK: "3", Env.ATTEMPT: "2", Env.RUN_DIR: str(tmp_path), **more}


def listens(env: dict[str, str]) -> dict[str, str]:
    async def play() -> dict[str, str]:
        words = LastWords(env)
        await words.finish()
        return words.env

    return asyncio.run(play())


def test_nccl_is_heard_where_it_is_told_to_speak_and_a_users_file_stays(tmp_path: Path) -> None:
    assert listens(env_of(tmp_path, NCCL_DEBUG="INFO"))["NCCL_DEBUG_FILE"] == str(tmp_path / "0.stderr")
    assert "NCCL_DEBUG_FILE" not in listens(env_of(tmp_path))
    assert "NCCL_DEBUG_FILE" not in listens(env_of(tmp_path, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE="/logs/nccl"))


def test_a_gang_on_gloo_records_for_the_one_who_asks_it_and_leaves_no_dump(tmp_path: Path) -> None:
    assert listens(env_of(tmp_path, DDPJOB_BACKEND="gloo")) == {"TORCH_FR_BUFFER_SIZE": "2000"}
    assert listens(env_of(tmp_path))["TORCH_FR_DUMP_TEMP_FILE"] == str(tmp_path / "0.trace-")


def test_the_recording_of_a_rank_that_waited_is_counted_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.RUN_DIR, str(tmp_path))
    monkeypatch.delenv(Env.CHECKPOINT_DIR, raising=False)
    dump = pickle.dumps({"entries": [ENTRY | {"collective_seq_id": 460_632}]})

    async def play() -> dict[str, int]:
        words = LastWords(env_of(tmp_path))
        for line in transcript("timeout-torch-2.7"):
            words.words.hear(line)
        (tmp_path / "0.trace-3").write_bytes(dump)
        return (await words.finish()).begun

    assert asyncio.run(play()) == {"0 nccl": 460_632}
    assert (tmp_path / "stalls" / "attempt-2" / "trace-3").read_bytes() == dump


def test_a_transport_is_logged_once_it_is_known_and_sockets_beside_infiniband_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(last_words, "infiniband", lambda: ["mlx5_0"])

    async def play() -> None:
        words = LastWords(env_of(tmp_path))
        assert words.transport() is None
        words.words.hear("a:1:2 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[0] [send] via NET/Socket/0")
        assert [words.transport() for _ in range(3)] == ["NET/Socket"] * 3
        await words.finish()

    asyncio.run(play())
    said = capsys.readouterr()
    assert said.out == "rank 3: NCCL goes by NET/Socket\n"
    assert said.err.startswith("warning: NCCL sends data over sockets, although this machine has mlx5_0:")
