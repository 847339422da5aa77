"""What a supervisor does with the signals that it gets."""

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_supervisor import taking_part


@pytest.mark.parametrize("together", [True, False])
def test_a_terminal_that_is_closed_stops_the_ranks_once_however_often_it_says_so(
    monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    # Only on Linux would this process adopt orphans from now on.
    monkeypatch.setattr(taking_part, "sys", SimpleNamespace(platform="darwin"))
    asked: list[int] = []
    follower: Any = SimpleNamespace(request=asked.append)

    async def scene() -> None:
        taking_part._listen_to_signals(follower, None)  # type: ignore[arg-type]
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0 if together else 0.02)
        await asyncio.sleep(0.05)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        asyncio.run(scene())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert asked == [signal.SIGTERM]
