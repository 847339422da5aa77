"""What is read of the flight recorder's dump. The first one is as PyTorch 2.15 wrote it, of gloo on a CPU."""

import pickle
from pathlib import Path

import pytest
from ddpjob_supervisor.gpu.flight_recorder import BUFFER, DUMPS, ENTRIES, FILE, OLD_NAMES, begun, entries_of, settings

ENTRY = {
    "record_id": 2,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 3,
    "p2p_seq_id": 0,
    "op_id": 3,
    "profiling_name": "gloo:all_reduce",
    "input_sizes": [[4]],
    "state": "scheduled",
    "retired": True,
    "is_p2p": False,
}


def dump(*entries: object) -> bytes:
    return pickle.dumps({"version": "2.10", "pg_config": {}, "entries": list(entries)})


def test_it_tells_how_many_collectives_of_each_group_had_begun() -> None:
    other = ENTRY | {"process_group": ("7", "undefined"), "collective_seq_id": 1}
    between_two = ENTRY | {"collective_seq_id": 9, "is_p2p": True}
    entries = entries_of(dump(ENTRY, ENTRY | {"collective_seq_id": 2}, other, between_two))
    assert begun(entries, "nccl") == {"0 nccl": 3, "7 nccl": 1}


@pytest.mark.parametrize("content", [b"", b"no pickle", dump(ENTRY)[:-9], pickle.dumps([1]), pickle.dumps({})])
def test_what_is_no_whole_dump_tells_nothing(content: bytes) -> None:
    assert entries_of(content) == []


def test_a_dump_that_would_run_something_is_not_read(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    assert entries_of(dump(ENTRY, Harmful())) == []
    assert not (tmp_path / "ran").exists()


def test_what_a_user_has_set_stays_whatever_its_name_is() -> None:
    assert settings("/run/0.trace-", {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/data/trace"}) == {BUFFER: ENTRIES}
    assert settings("/run/0.trace-", {BUFFER: "20"}) == {FILE: "/run/0.trace-"}
    assert settings("/run/0.trace-", {OLD_NAMES[FILE]: "/data/trace", DUMPS: "0"}, "2.6.0") == {
        BUFFER: ENTRIES,
        OLD_NAMES[BUFFER]: ENTRIES,
    }


NEW = {BUFFER: ENTRIES, FILE: "/run/0.trace-"}
OLD = {OLD_NAMES[BUFFER]: ENTRIES, OLD_NAMES[FILE]: "/run/0.trace-"}


@pytest.mark.parametrize(
    ("torch", "wanted"),
    [
        ("2.4.1+cu121", NEW | OLD),
        ("2.5.1", NEW | OLD),
        ("2.6.0+cu124", NEW | OLD | {DUMPS: "1"}),
        ("2.7.1", NEW | OLD),
        ("2.8.0a0+5228986c39.nv25.06", NEW | OLD),
        ("2.8.0", NEW),
        ("2.15.0+cu132", NEW),
        ("", NEW),
    ],
)
def test_each_pytorch_is_told_by_the_names_that_it_reads_and_does_not_warn_of(
    torch: str, wanted: dict[str, str]
) -> None:
    """Those of 2.4.1, 2.6.0 and 2.15.0 are the ones that their libraries contain."""
    assert settings("/run/0.trace-", {}, torch) == wanted
