"""The socket in rank 0's pod at which programs for a held gang arrive, one conversation at a time."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import msgspec
from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.reporting.result import left_result, result_file
from ddpjob_rank.running.program import program_of

from ddpjob_supervisor.gang.coordinator_service import CoordinatorService, NotHoldingError
from ddpjob_supervisor.gang.messages import HeldProgram
from ddpjob_supervisor.gang.once import shown
from ddpjob_supervisor.gang.states import RunEnd

from .words import (
    CODE_BYTES,
    COMMAND_BYTES,
    LINE_BYTES,
    VERSION,
    Answer,
    Begun,
    Going,
    Interrupt,
    LetFinish,
    NotRun,
    Over,
    Question,
    RunProgram,
    SendCode,
    TheCode,
    questions,
    socket_of,
    to_line,
)

GOING_SECONDS = 15.0
SPEAKING_SECONDS = 60.0
"""How long the command may take to send the code."""


@asynccontextmanager
async def reception(directory: Path, uid: str, service: CoordinatorService, heartbeat: Path) -> AsyncIterator[None]:
    """Accepts programs for the job with this uid while the `async with` block runs.

    `heartbeat` is the heartbeat file of rank 0, which leaves results beside it.

    Whoever reaches the socket runs code as this user. No other user can, because `directory` is private.

    Raises:
        StorageError: The socket cannot be created.
    """
    place = directory / socket_of(uid)
    try:
        server = await asyncio.start_unix_server(_Reception(service, heartbeat).serve, place, limit=LINE_BYTES)
    except OSError as error:
        raise StorageError(f"cannot create the socket {place} for programs: {error}") from error
    try:
        yield
    finally:
        server.close()


class _Reception:
    def __init__(self, service: CoordinatorService, heartbeat: Path) -> None:
        self._service = service
        self._heartbeat = heartbeat
        self._digest, self._data = "", b""
        """The last code, so that it need not be sent again."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Has one conversation. If the command goes away, its ranks are ended."""
        try:
            async with aclosing(self._answers(reader)) as answers:
                async for answer in answers:
                    writer.write(to_line(answer))
                    await writer.drain()
        except OSError:
            pass  # The command is gone, and `_answers` has ended its ranks.
        finally:
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader) -> AsyncGenerator[Answer]:
        try:
            async with asyncio.timeout(SPEAKING_SECONDS):
                program = _program(await _next(reader))
                self._service.check_holding()
                if program.code != self._digest:
                    yield SendCode()
                    self._digest, self._data = program.code, _code(await _next(reader), program.code)
            attempt, ended = self._service.run(program, self._data)
        except NotHoldingError as error:
            yield NotRun(str(error), later=error.later)
            return
        except (ConfigError, TimeoutError) as error:
            yield NotRun(str(error) or "the code did not arrive in time")
            return
        ending = asyncio.create_task(self._end(attempt, reader))
        try:
            yield Begun(attempt)
            while not ended.done():
                await asyncio.wait([ended], timeout=GOING_SECONDS)
                if not ended.done():
                    yield Going()
            yield self._over(ended.result())
        finally:
            ending.cancel()
            self._service.interrupt(attempt)

    def _over(self, end: RunEnd) -> Over:
        result = left_result(self._heartbeat, end.attempt) if end.exit_code == ExitCode.DONE else None
        result_file(self._heartbeat, end.attempt).unlink(missing_ok=True)
        incident = None if end.incident is None else end.incident.to_document()
        return Over(end.attempt, end.exit_code, end.message, incident, None if result is None else result[0])

    async def _end(self, attempt: int, reader: asyncio.StreamReader) -> None:
        """Ends the ranks of an attempt as the command wishes, or if it is gone."""
        request = await _request(reader)
        if isinstance(request, LetFinish):
            self._service.finish_run(attempt)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._service.grace):
                    while isinstance(request, LetFinish):
                        request = await _request(reader)
        self._service.interrupt(attempt)


def _program(question: Question) -> HeldProgram:
    """The program that a command wants to run.

    Raises:
        ConfigError: The request is not valid.
    """
    match question:
        case RunProgram(words, digest, by, version):
            if version != VERSION:
                raise ConfigError(
                    f"the command speaks version {version} of this protocol, and the image version {VERSION}: use"
                    " the ddpjob of the image's release"
                )
            program_of(words)
            program = HeldProgram(words, digest, shown(by))
            if len(msgspec.json.encode(program)) > COMMAND_BYTES:
                raise ConfigError(f"the command line is longer than {COMMAND_BYTES} bytes of JSON")
            return program
        case _:
            raise ConfigError("the command's first line is not a program")


def _code(question: Question, digest: str) -> bytes:
    """The archive.

    Raises:
        ConfigError: It is not what was announced, or too large.
    """
    if isinstance(question, TheCode) and len(question.data) > CODE_BYTES:
        raise ConfigError(f"the code has {len(question.data)} bytes; at most {CODE_BYTES} are allowed")
    if not isinstance(question, TheCode) or hashlib.sha256(question.data).hexdigest() != digest:
        raise ConfigError("the code that arrived is not the code that was announced")
    return question.data


async def _next(reader: asyncio.StreamReader) -> Question:
    """The command's next line.

    Raises:
        ConfigError: It is not valid, or the command is gone.
    """
    try:
        return questions.decode(await reader.readuntil())
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.MsgspecError, OSError) as error:
        raise ConfigError(f"the command's line is not valid: {type(error).__name__}") from error


async def _request(reader: asyncio.StreamReader) -> LetFinish | Interrupt:
    """How the command wants its ranks to end. If it is gone, at once."""
    with suppress(ConfigError):
        while not isinstance(question := await _next(reader), LetFinish | Interrupt):
            pass
        return question
    return Interrupt()
