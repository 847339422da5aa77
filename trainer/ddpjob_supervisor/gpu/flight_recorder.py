"""The dump of PyTorch's flight recorder: which collectives a process had begun when NCCL's watchdog ended it. Pure.

The watchdog writes it before it ends the process, into a file of its own for each rank. Its format is a pickle of
plain dicts, lists, strings and numbers (PyTorch 2.4 to 2.15: torch/csrc/distributed/c10d/FlightRecorder.hpp).
"""

import io
import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

BUFFER, FILE = "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"
OLD_NAMES = {BUFFER: "TORCH_NCCL_TRACE_BUFFER_SIZE", FILE: "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
"""PyTorch still reads them, and warns of each: they are for users to set."""

ENTRIES = "2000"
"""How many collectives are kept: the default, which was 0 once, still in PyTorch 2.8."""


def settings(prefix: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a rank record, and leave a dump at `prefix` and its number if its backend does that.

    Those that somebody has set are left out.
    """
    wanted = {BUFFER: ENTRIES} if prefix is None else {BUFFER: ENTRIES, FILE: prefix}
    return {name: value for name, value in wanted.items() if not {name, OLD_NAMES[name]} & env.keys()}


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
