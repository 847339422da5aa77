"""How much of the machine's memory a process takes."""

from pathlib import Path

KIB = 1024


def proportional_set_size(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes of a process, counting each page by its share among those that hold it; None: it cannot be read.

    For processes forked from one another this is what adds up. The kernel walks all pages of the process for it, tens
    of milliseconds with PyTorch in it: ask only once in a while, from a thread.
    (https://docs.kernel.org/filesystems/proc.html, smaps_rollup)
    """
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * KIB for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None
