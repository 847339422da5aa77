"""The program that docker runs as runc. Removes from a configuration what root may not do here, and then runs runc.

Without CAP_SYS_RESOURCE, nobody can raise a limit, lower an OOM score, or pass this capability on.
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

FORBIDDEN = "CAP_SYS_RESOURCE"
FILES = {"--bundle": "config.json", "-b": "config.json", "--process": "", "-p": ""}
"""Options that name a configuration: either a bundle, which contains the configuration in the file given here, or the
file itself."""


def tame(process: dict[str, Any]) -> None:
    """Changes a process of the runtime specification so that it can be started here."""
    process.pop("rlimits", None)
    process.pop("oomScoreAdj", None)
    for names in process.get("capabilities", {}).values():
        names[:] = [name for name in names if name != FORBIDDEN]


def tame_all(words: list[str]) -> None:
    """Applies `tame` to each configuration that a command line of runc names."""
    for option, value in pairwise(words):
        if option in FILES:
            file = Path(value, FILES[option])
            config = json.loads(file.read_text())
            tame(config.get("process", config))
            file.write_text(json.dumps(config))


if __name__ == "__main__":
    tame_all(sys.argv[2:])
    os.execv(sys.argv[1], sys.argv[1:])
