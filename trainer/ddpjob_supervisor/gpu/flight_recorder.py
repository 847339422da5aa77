"""PyTorch's flight recorder: what makes it record, and its dump, which tells what a process had begun. Pure.

NCCL's watchdog writes the dump before it ends the process, into a file of its own for each rank. Its format is a
pickle of plain dicts, lists, strings and numbers.
(PyTorch 2.4 to 2.15: torch/csrc/distributed/c10d/FlightRecorder.hpp.)
"""

import io
import pickle
import re
from collections.abc import Mapping
from typing import Any, NoReturn

BUFFER, FILE = "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"
OLD_NAMES = {BUFFER: "TORCH_NCCL_TRACE_BUFFER_SIZE", FILE: "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
"""The only ones that PyTorch read before 2.8 (https://github.com/pytorch/pytorch/pull/152563). It still reads them,
and warns of each that is set, even beside the new one."""

DUMPS = "TORCH_NCCL_DUMP_ON_TIMEOUT"

READS_OLD_NAMES = re.compile(r"2\.[4-7]\.|2\.8\.0(a|\.dev)")
"""Releases of PyTorch; of those on the way to 2.8, as in NVIDIA's images, some do and some do not."""

DUMPS_IF_TOLD = re.compile(r"2\.6\.")
"""Later ones dump by default (https://github.com/pytorch/pytorch/pull/143446). Earlier ones must not be told: their
watchdog would then sleep for TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, 8 minutes or more, before it ends the process."""

ENTRIES = "2000"
"""How many collectives are kept: the default, which was 0 once, still in PyTorch 2.8."""


def settings(prefix: str | None, env: Mapping[str, str], torch: str = "") -> dict[str, str]:
    """The variables that make a rank record, and leave a dump at `prefix` and its number if its backend does that.

    `torch` is its version, if it is known. What somebody has set is left out, whatever its name is.
    """
    new = {BUFFER: ENTRIES} if prefix is None else {BUFFER: ENTRIES, FILE: prefix}
    wanted = {name: value for name, value in new.items() if not {name, OLD_NAMES[name]} & env.keys()}
    if READS_OLD_NAMES.match(torch):
        wanted |= {OLD_NAMES[name]: value for name, value in wanted.items()}
    if DUMPS_IF_TOLD.match(torch) and prefix is not None and DUMPS not in env:
        wanted[DUMPS] = "1"
    return wanted


class _Plain(pickle.Unpickler):
    """Reads data, and makes no objects of any class: what a rank wrote is not to run in its supervisor."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a flight recorder's dump has no {module}.{name}")


def entries_of(dump: bytes) -> list[Mapping[str, Any]]:
    """Its entries, the oldest first; none if it is not a whole dump."""
    try:
        said = _Plain(io.BytesIO(dump)).load()
        return [entry for entry in said["entries"] if isinstance(entry, Mapping)]
    except Exception:  # noqa: BLE001  A pickle that is cut off, or none, may raise anything.
        return []


def begun(entries: list[Mapping[str, Any]], backend: str) -> dict[str, int]:
    """How many collectives had begun, by group and backend."""
    counts: dict[str, int] = {}
    for entry in entries:
        number, group = entry.get("collective_seq_id"), entry.get("process_group")
        if isinstance(number, int) and isinstance(group, tuple | list) and group and not entry.get("is_p2p"):
            name = f"{group[0]} {backend}"
            counts[name] = max(number, counts.get(name, 0))
    return counts
