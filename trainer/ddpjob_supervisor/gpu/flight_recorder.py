"""PyTorch's flight recorder: the settings that turn it on, and its dump, which lists a rank's collectives. Pure.

PyTorch's NCCL watchdog writes the dump before it ends the process, into one file per rank. The dump is a pickle of
plain dicts, lists, strings and numbers.
(PyTorch 2.4 to 2.15: torch/csrc/distributed/c10d/FlightRecorder.hpp.)
"""

import io
import pickle
import re
from collections.abc import Mapping
from typing import Any, NoReturn

BUFFER, FILE = "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"
OLD_NAMES = {BUFFER: "TORCH_NCCL_TRACE_BUFFER_SIZE", FILE: "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
"""The only names that PyTorch before 2.8 reads (https://github.com/pytorch/pytorch/pull/152563). Later releases still
read them, but print a warning for each that is set, even if the new name is set as well."""

DUMPS = "TORCH_NCCL_DUMP_ON_TIMEOUT"

READS_OLD_NAMES = re.compile(r"2\.[4-7]\.|2\.8\.0(a|\.dev)")
"""The releases of PyTorch that may need the old names. Some prereleases of 2.8 need them, as in NVIDIA's images."""

DUMPS_IF_TOLD = re.compile(r"2\.6\.")
"""The releases of PyTorch that write dumps only if DUMPS is set. Later releases write them by default
(https://github.com/pytorch/pytorch/pull/143446). DUMPS must not be set for earlier releases: their watchdog would
then sleep for TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, 8 minutes or more, before it ends the process."""

ENTRIES = "2000"
"""The number of collectives to keep. This is PyTorch's default, but up to 2.8 the default was 0."""


def settings(prefix: str | None, env: Mapping[str, str], torch: str = "") -> dict[str, str]:
    """The variables that turn on a rank's flight recorder.

    A dump is written to the path that consists of `prefix` and the rank's number; `prefix` is None if the rank's
    backend writes no dumps. `torch` is the version of PyTorch, or empty if it is unknown. A variable is left out if
    `env` sets it under its old or its new name.
    """
    new = {BUFFER: ENTRIES} if prefix is None else {BUFFER: ENTRIES, FILE: prefix}
    wanted = {name: value for name, value in new.items() if not {name, OLD_NAMES[name]} & env.keys()}
    if READS_OLD_NAMES.match(torch):
        wanted |= {OLD_NAMES[name]: value for name, value in wanted.items()}
    if DUMPS_IF_TOLD.match(torch) and prefix is not None and DUMPS not in env:
        wanted[DUMPS] = "1"
    return wanted


class _Plain(pickle.Unpickler):
    """Reads plain data only, and refuses every class, because a rank's file must not run code in the supervisor."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a flight recorder's dump has no {module}.{name}")


def entries_of(dump: bytes) -> list[Mapping[str, Any]]:
    """The entries of a dump, the oldest first; empty if the dump is incomplete."""
    try:
        content = _Plain(io.BytesIO(dump)).load()
        return [entry for entry in content["entries"] if isinstance(entry, Mapping)]
    except Exception:  # noqa: BLE001  (a pickle that is cut off, or no pickle at all, may raise any error)
        return []


def begun(entries: list[Mapping[str, Any]], backend: str) -> dict[str, int]:
    """The number of collectives that had begun, by group and backend, such as `0 nccl`."""
    counts: dict[str, int] = {}
    for entry in entries:
        number, group = entry.get("collective_seq_id"), entry.get("process_group")
        if isinstance(number, int) and isinstance(group, tuple | list) and group and not entry.get("is_p2p"):
            name = f"{group[0]} {backend}"
            counts[name] = max(number, counts.get(name, 0))
    return counts
