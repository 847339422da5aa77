"""Runs a packed function as a rank does, in this process, and gives the result that it leaves."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.cli.packed import PackedProgram


def result_of_call(packed: PackedProgram, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the files into a directory, runs the script there, and gives what the function has returned."""
    for name, content in packed.files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    script = directory / packed.script
    before = {*sys.modules}
    with monkeypatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(sys, "argv", [str(script)])
        patch.setattr(sys, "path", [str(script.parent), *sys.path])
        patch.setenv("DDPJOB_HEARTBEAT", str(directory / "beat"))
        patch.setenv("RANK", "0")
        patch.delenv("DDPJOB_ATTEMPT", raising=False)
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            for name in sys.modules.keys() - before:
                del sys.modules[name]
    file = directory / "beat.result-1"
    return json.loads(file.read_bytes()) if file.exists() else None
