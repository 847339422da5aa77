"""What a process takes of the machine's memory."""

import mmap
import os
import time
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


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this kernel does not tell")
def test_a_process_that_takes_more_is_seen_to() -> None:
    began = time.process_time()
    before = proportional_set_size(os.getpid())
    print(f"proportional set size: {before} bytes, read within {(time.process_time() - began) * 1e3:.1f} ms of CPU")
    assert before is not None
    with mmap.mmap(-1, 64 << 20) as held:
        held.write(b"x" * (64 << 20))
        after = proportional_set_size(os.getpid())
    assert after is not None
    assert 60 << 20 <= after - before <= 68 << 20
