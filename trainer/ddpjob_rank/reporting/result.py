"""The result of a job: a JSON value that rank 0 leaves in a file, where its supervisor finds it at the end."""

import datetime as dt
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError

STATUS_BYTES = 2048
"""The largest result that the job's status holds. The contract has the same number."""
LARGEST_BYTES = 1 << 20
DEEPEST = 50
"""How many lists and dicts may be inside each other."""
MOST_BITS = 1024
"""The size of the largest whole number. Python refuses to write numbers that are much larger."""
FORMS = "numbers, strings, booleans, None, and lists and dicts of them"


def set_result(value: Any) -> None:
    """Sets the job's result: a value that `Job.result()` and `ddpjob.run()` return when the job has succeeded.

        for x, y in loader:
            loss = train_one_step(x, y)
        ddpjob.set_result({"loss": loss, "steps": len(loader)})

    Only rank 0's result counts, and of several calls the last one of the attempt that succeeds. The value is kept as
    JSON, and nothing is pickled: scalars of NumPy and tensors with one number become numbers, tuples become lists,
    and paths, dates and times become strings. A result of up to 2 KiB is kept in the job's status, where everybody
    who may view the job can read it; a larger one, of up to 1 MiB, in the job's history or, on one machine without a
    history, in the run's directory. On nodes that `ddpjob hold` holds, where a job has many programs, it is kept
    nowhere, and goes to who runs the program. Without a supervisor, such as under torchrun, the function only checks
    the value.

    Args:
        value: The result.

    Raises:
        ConfigError: The value cannot be JSON, or is too large; the message names the part. The job fails, because
            another attempt would end in the same way.
    """
    if os.environ.get(Env.RANK, "0") != "0":
        return
    text = json_of(value)
    heartbeat = os.environ.get(Env.HEARTBEAT)
    if heartbeat is None:
        return
    size, held = len(text.encode()), held_mark(Path(heartbeat)).exists()
    if size > STATUS_BYTES and not (held or os.environ.get(Env.HISTORY) or os.environ.get(Env.RUN_DIR)):
        raise ConfigError(
            f"the result is {size} bytes of JSON, but a job's status holds at most {STATUS_BYTES}; for a larger one,"
            " give the job a history (history=…, or --history), or save a file and return its path"
        )
    file = result_file(Path(heartbeat), os.environ.get(Env.ATTEMPT, "1"))
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(file)  # The supervisor sees either all of it or nothing.


def result_file(heartbeat: Path, attempt: int | str) -> Path:
    """Where rank 0 leaves its result of an attempt. `heartbeat` is the rank's heartbeat file."""
    return heartbeat.with_name(f"{heartbeat.name}.result-{attempt}")


def left_result(heartbeat: Path, attempt: int) -> tuple[Any, int] | None:
    """The result that rank 0 has left, and its size as JSON in bytes; None if an attempt has left none."""
    try:
        with result_file(heartbeat, attempt).open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        result = parsed(content)  # Another program may have written the file.
        return result, len(json_of(result).encode())  # Python also reads NaN, and halves of surrogate pairs.
    except (OSError, ValueError, ConfigError):
        return None


def held_mark(heartbeat: Path) -> Path:
    """The file beside rank 0's heartbeat file that exists if the gang is held: then no place has to keep a result."""
    return heartbeat.with_name(f"{heartbeat.name}.held")


def json_of(value: Any) -> str:
    """A value as JSON, on one line.

    Raises:
        ConfigError: It has a part that JSON cannot hold, or is too large.
    """
    text = json.dumps(_plain(value, "result", 0), ensure_ascii=False, separators=(",", ":"))
    if (size := len(text.encode())) > LARGEST_BYTES:
        raise ConfigError(f"the result is {size} bytes of JSON; at most {LARGEST_BYTES} (1 MiB) are allowed")
    return text


# `ddpjob_operator.sdk.json_values` does the same with arguments: the two programs share no code, but a test.
def _plain(value: Any, place: str, depth: int) -> Any:
    """A value in the types that JSON has. `place` is its place in the whole, as an expression."""
    if depth > DEEPEST:
        raise ConfigError(f"{place[:64]}… is nested more than {DEEPEST} levels deep; does it contain itself?")
    made: Any = value
    match value:
        case None | bool():
            pass
        case str():
            made = _text(str.__str__(value), place)  # str() of an Enum is its name.
        case int() | float():
            made = _number(value, place)
        case Mapping():
            made = dict(_items(value, place, depth))
        case list() | tuple():
            made = [_plain(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
        case dt.date() | dt.time():
            made = value.isoformat()
        case os.PathLike():
            made = _text(os.fsdecode(value), place)
        case _:
            made = _plain(_from_scalar(value, place), place, depth + 1)
    return made


def _number(value: float, place: str) -> float:
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            raise ConfigError(f"{place} is a whole number of more than {MOST_BITS} bits; return it as a string")
        return int(value)
    if not math.isfinite(value):
        raise ConfigError(f"{place} is {float(value)}, which JSON does not have; return None or a string")
    return float(value)


def _from_scalar(value: Any, place: str) -> Any:
    """The number or time in a scalar of NumPy, or in an array or a tensor with one number, whatever its shape."""
    size = getattr(value, "numel", None) or getattr(value, "size", None)  # `size` of a tensor is its shape.
    if hasattr(value, "dtype") and (size() if callable(size) else size) == 1:
        return str(value.reshape(())) if getattr(value.dtype, "kind", "") in {"M", "m"} else value.item()
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    instead = "; of an array or a tensor: .tolist()" if hasattr(value, "tolist") else ""
    raise ConfigError(f"{place} is of type {name}, which is not JSON: return {FORMS}{instead}")


def _items(value: Mapping[Any, Any], place: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise ConfigError(f"{place} has the key {key!r:.64}, but JSON has only strings as keys")
        yield _text(str.__str__(key), f"a key of {place}"), _plain(item, f"{place}[{key!r:.64}]", depth + 1)


def _text(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{place} is a string that UTF-8 cannot hold (half of a surrogate pair)") from None
    return text
