"""Files of metrics as a trainer writes them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ZERO = datetime(2026, 1, 1, 12, tzinfo=UTC)


def line(event: str, attempt: int, step: int, at: float = 0.0, **values: Any) -> str:
    """One line, written so many seconds after ZERO."""
    time = (ZERO + timedelta(seconds=at)).isoformat()
    return json.dumps({"time": time, "event": event, "attempt": attempt, "step": step, **values})


def write(file: Path, *lines: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{one}\n" for one in lines))
    return file
