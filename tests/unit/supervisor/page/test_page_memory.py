"""What a process takes of the machine's memory."""

import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_supervisor.watch.procfs import proportional_set_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("55d5c7a00000-7ffd rollup\nRss:       2048 kB\nPss:       1024 kB\nPss_Anon:   512 kB\n", 1 << 20),
        ("", None),
        (None, None),
    ],
    ids=["as the kernel writes it", "a zombie's", "of a process that has ended"],
)
def test_it_is_read_from_proc(tmp_path: Path, text: str | None, size: int | None) -> None:
    if text is not None:
        (tmp_path / "17").mkdir()
        (tmp_path / "17" / "smaps_rollup").write_text(text)
    assert proportional_set_size(17, tmp_path) == size


TAKES_MORE = """
input("ready")
held = b"x" * (64 << 20)
input(len(held))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this kernel does not tell")
def test_a_process_that_takes_more_is_seen_to() -> None:
    # Not this process: it shares memory with its children, and has more when one of them ends.
    with subprocess.Popen([sys.executable, "-c", TAKES_MORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.read(5) == b"ready"
        before = proportional_set_size(other.pid)
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.read(8)
        after = proportional_set_size(other.pid)
        other.stdin.close()
    assert before is not None
    assert after is not None
    assert 56 << 20 <= after - before <= 80 << 20
