import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.local.here import Here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path)
    yield place
    for process in place.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if process.stdout:
            process.stdout.close()
    for file in tmp_path.glob("ddpjob-runs/*/job.json"):
        for left in place.processes(file.parent.name):
            with contextlib.suppress(psutil.NoSuchProcess):  # It may end by itself meanwhile.
                left.kill()
