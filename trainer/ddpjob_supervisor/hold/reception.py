"""The socket in rank 0's pod at which programs for a held gang arrive, and new code for a running job."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import msgspec
from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.reporting.result import left_result, result_file
from ddpjob_rank.running.program import program_of
from msgspec import structs

from ddpjob_supervisor.gang.coordinator_service import CoordinatorService, NotReadyError
from ddpjob_supervisor.gang.messages import CodeRevision, HeldProgram
from ddpjob_supervisor.gang.once import shown
from ddpjob_supervisor.gang.states import RunEnd

from .words import (
    COMMAND_BYTES,
    LINE_BYTES,
    VERSION,
    Answer,
    Apply,
    Begun,
    Going,
    Interrupt,
    LetFinish,
    NotRun,
    Over,
    Question,
    Ready,
    ReplaceCode,
    RunProgram,
    SendCode,
    TheCode,
    Tried,
    questions,
    socket_of,
    to_line,
)

GOING_SECONDS = 15.0
TRYING_SECONDS = 0.2
"""Seconds between two looks whether new code has finished its first step, of which nothing else tells."""
SPEAKING_SECONDS = 60.0
"""How long the command may take for each line: for a piece of the code, or to write the code into the job."""


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
        self._arriving = asyncio.Lock()
        """Held while code arrives, and until it is known whether it is wanted: code takes the place of other code."""

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
            match await _next(reader):
                case RunProgram() as question:
                    answers = self._run(reader, _program(question))
                case ReplaceCode() as question:
                    answers = self._replace(reader, question)
                case _:
                    yield NotRun("the command's first line is not a program")
                    return
            async with aclosing(answers):
                async for answer in answers:
                    yield answer
        except NotReadyError as error:
            yield NotRun(str(error), later=error.later)
        except ConfigError as error:
            yield NotRun(str(error))

    async def _run(self, reader: asyncio.StreamReader, program: HeldProgram) -> AsyncGenerator[Answer]:
        async with self._alone():
            self._service.check_holding()
            if not self._service.code.has(program.code):
                yield SendCode()
                await self._receive(reader, program.code)
            attempt, ended = self._service.run(program)
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
            self._service.interrupt(attempt, gone=True)

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
        self._service.interrupt(attempt, gone=request is None)

    async def _replace(self, reader: asyncio.StreamReader, question: ReplaceCode) -> AsyncGenerator[Answer]:
        """Replaces the code of a running job, once the command has written it into the job.

        If the command dies before it says so, the code stays prepared: perhaps it has written it.
        """
        _check_version(question.version)
        async with self._alone():
            self._service.check_replaceable(question.digest)
            if not self._service.code.has(question.digest):
                yield SendCode()
                await self._receive(reader, question.digest)
            prepared = CodeRevision(digest=question.digest, by=shown(question.by))
            self._service.coordinator.prepare(prepared)
            yield Ready(self._service.coordinator.needed[-1])
            match await _next(reader):
                case Apply(revision):
                    attempt = self._service.replace_code(structs.replace(prepared, revision=revision))
                    yield Begun(attempt, self._service.coordinator.needed[-1])
                case _:
                    raise ConfigError("the command has not said that the job names the code")
        told = time.monotonic()
        while (failed := self._service.fate_of(question.digest)) is None:
            await asyncio.sleep(TRYING_SECONDS)
            if time.monotonic() - told >= GOING_SECONDS:
                told = time.monotonic()
                yield Going()
        yield Tried(failed)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Lets one command at a time send code.

        Raises:
            NotReadyError: Another command does.
        """
        if self._arriving.locked():
            raise NotReadyError("another command sends code", later=True)
        async with self._arriving:
            yield

    async def _receive(self, reader: asyncio.StreamReader, digest: str) -> None:
        """Takes in the archive with this digest.

        Raises:
            ConfigError: It is not what was announced, too large, or cannot be kept.
        """
        try:
            arriving = self._service.code.receive(digest, self._service.coordinator.needed)
            while piece := _piece(await _next(reader)):
                arriving.add(piece)
            arriving.finish()
        except (ValueError, OSError) as error:
            raise ConfigError(str(error)) from error


def _program(question: RunProgram) -> HeldProgram:
    """The program that a command wants to run.

    Raises:
        ConfigError: The request is not valid.
    """
    _check_version(question.version)
    words, env, packages, requirements = question.words, question.env, question.packages, question.requirements
    program_of(words)
    # A process cannot be started with any of these.
    told = (*words, *env, *env.values(), *packages, requirements)
    if "" in env or any("=" in name for name in env) or "\0" in "".join(told):
        raise ConfigError("a word or a variable has no name, or a character that none may have")
    program = HeldProgram(words, question.digest, shown(question.by), env, packages, requirements)
    if len(msgspec.json.encode(program)) > COMMAND_BYTES:
        raise ConfigError(f"the command line and its variables are longer than {COMMAND_BYTES} bytes of JSON")
    return program


def _check_version(version: int) -> None:
    if version != VERSION:
        raise ConfigError(
            f"the command speaks version {version} of this protocol, and the image version {VERSION}: use the ddpjob"
            " of the image's release"
        )


def _piece(question: Question) -> bytes:
    """A piece of the archive.

    Raises:
        ConfigError: The line is something else.
    """
    if not isinstance(question, TheCode):
        raise ConfigError("the code that arrived is not the code that was announced")
    return question.data


async def _next(reader: asyncio.StreamReader) -> Question:
    """The command's next line.

    Raises:
        ConfigError: It is not valid, it does not arrive in time, or the command is gone.
    """
    try:
        async with asyncio.timeout(SPEAKING_SECONDS):
            return await _line(reader)
    except TimeoutError as error:
        raise ConfigError("the command's next line did not arrive in time") from error


async def _line(reader: asyncio.StreamReader) -> Question:
    """The command's next line, however long it takes.

    Raises:
        ConfigError: It is not valid, or the command is gone.
    """
    try:
        return questions.decode(await reader.readuntil())
    except (
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
        msgspec.MsgspecError,
        RecursionError,
        OSError,
    ) as error:
        raise ConfigError(f"the command's line is not valid: {type(error).__name__}") from error


async def _request(reader: asyncio.StreamReader) -> LetFinish | Interrupt | None:
    """How the command wants its ranks to end; None if it is gone."""
    with suppress(ConfigError):
        while not isinstance(question := await _line(reader), LetFinish | Interrupt):
            pass
        return question
    return None
