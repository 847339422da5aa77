"""What the socket for programs of a held gang takes, and what is answered."""

import asyncio
import hashlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_supervisor.gang.coordinator import Coordinator
from ddpjob_supervisor.gang.coordinator_service import NotReadyError
from ddpjob_supervisor.gang.messages import HeldProgram
from ddpjob_supervisor.gang.states import RunEnd
from ddpjob_supervisor.hold import reception
from ddpjob_supervisor.hold.reception import _program
from ddpjob_supervisor.hold.words import (
    COMMAND_BYTES,
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
    socket_of,
    to_line,
)
from ddpjob_supervisor.node import sent_code
from ddpjob_supervisor.node.sent_code import SentCode

from tests.support.waiting import patience
from tests.unit.supervisor.gang.gangs import limits

DIGEST = "0" * 64
CODE = b"an archive"
RUN = RunProgram(("train.py",), hashlib.sha256(CODE).hexdigest(), "alice")
SENT = (TheCode(CODE[:3]), TheCode(CODE[3:]), TheCode(b""))
OTHER_CODE = "the code that arrived is not the code that was announced"
OVER = RunEnd(3, 7, "rank 1 failed")

answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


@pytest.mark.parametrize(
    ("words", "digest"),
    [
        (("train.py", "x" * COMMAND_BYTES), DIGEST),
        (("train.py", *[""] * 30_000), DIGEST),
        (("train.py", "\x1b" * 15_000), DIGEST),
        (("train.py",), "0" * COMMAND_BYTES),
    ],
    ids=["a long word", "many empty words", "control characters", "a long digest"],
)
def test_a_program_that_would_not_fit_into_a_line_between_supervisors_is_refused(
    words: tuple[str, ...], digest: str
) -> None:
    with pytest.raises(
        ConfigError, match=f"the command line and its variables are longer than {COMMAND_BYTES} bytes"
    ):
        _program(RunProgram(words, digest, "alice"))


def test_a_long_command_line_is_taken_and_its_variables() -> None:
    words, env = ("train.py", *["--lr"] * 8000), {"LR": "0.1=", "EMPTY": ""}
    assert _program(RunProgram(words, DIGEST, "alice\x1b", env)) == HeldProgram(words, DIGEST, r"alice\x1b", env)


def test_variables_count_as_the_command_line_does() -> None:
    with pytest.raises(ConfigError, match="are longer than"):
        _program(RunProgram(("train.py",), DIGEST, "alice", {"A": "x" * COMMAND_BYTES}))


@pytest.mark.parametrize(
    ("word", "env"),
    [("a\0", {}), ("a", {"": "b"}), ("a", {"A=B": "c"}), ("a", {"A\0": "b"}), ("a", {"A": "\0"})],
    ids=["a word", "no name", "an equals sign", "a name", "a value"],
)
def test_what_no_process_can_be_started_with_is_refused(word: str, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="a word or a variable has no name, or a character that none may have"):
        _program(RunProgram(("train.py", word), DIGEST, "alice", env))


@dataclass
class Gang:
    """A held gang, as its coordinator shows it."""

    busy: NotReadyError | None = None
    runs: list[HeldProgram] = field(default_factory=list)
    code: SentCode = field(default_factory=SentCode)
    coordinator: Coordinator = field(default_factory=lambda: Coordinator(1, limits(), 0.0))
    finishing: list[int] = field(default_factory=list)
    saving: asyncio.Event = field(default_factory=asyncio.Event)
    grace: float = 0.0
    interrupted: list[int] = field(default_factory=list)
    lost: list[bool] = field(default_factory=list)
    """Whether the command was gone, for each of these."""
    ended: asyncio.Future[RunEnd] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def check_holding(self) -> None:
        if self.busy:
            raise self.busy

    def run(self, program: HeldProgram) -> tuple[int, asyncio.Future[RunEnd]]:
        self.runs.append(program)
        self.ended = asyncio.get_running_loop().create_future()
        return len(self.runs), self.ended

    def finish_run(self, attempt: int) -> None:
        self.finishing.append(attempt)
        self.saving.set()

    def interrupt(self, attempt: int, *, gone: bool) -> None:
        self.interrupted.append(attempt)
        self.lost.append(gone)
        if not self.ended.done():
            self.ended.set_result(OVER)


@dataclass
class Command:
    """The command's end of a conversation."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, *questions: Question) -> None:
        self.writer.writelines(map(to_line, questions))

    async def hear(self) -> Answer | None:
        """The next answer; None if there is no more."""
        line = await self.reader.readline()
        return answers.decode(line) if line else None


Talk = Callable[[Gang, Callable[[], Awaitable[Command]]], Awaitable[None]]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Talk], None]]:
    """Lets a gang be talked to. The path is short, as it has to be for a socket."""
    monkeypatch.setattr(reception, "GOING_SECONDS", patience(30))
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, ExitStack() as files:

        async def talked(talk: Talk) -> None:
            gang: Any = Gang()
            files.enter_context(gang.code)
            commands: list[Command] = []

            async def connect() -> Command:
                commands.append(Command(*await asyncio.open_unix_connection(Path(directory, socket_of("u")))))
                return commands[-1]

            async with (
                asyncio.timeout(patience(20)),
                reception.reception(Path(directory), "u", gang, Path(directory, "heartbeat")),
            ):
                await talk(gang, connect)
                for command in commands:
                    command.writer.close()
                    await command.writer.wait_closed()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                assert not others or not (await asyncio.wait(others))[1]

        yield lambda talk: asyncio.run(talked(talk))


def test_a_program_is_run_and_its_end_is_told_and_its_code_is_asked_for_once(
    held: Callable[[Talk], None],
) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        for attempt in (1, 2):
            command = await connect()
            command.say(RUN)
            if attempt == 1:
                assert await command.hear() == SendCode()
                command.say(*SENT)
            assert await command.hear() == Begun(attempt)
            gang.ended.set_result(OVER)
            assert await command.hear() == Over(3, 7, "rank 1 failed")
            assert await command.hear() is None
        assert gang.runs == [HeldProgram(RUN.words, RUN.digest, "alice")] * 2
        assert gang.code.piece(RUN.digest, 0) == CODE

    held(talk)


def test_while_one_command_sends_code_another_one_has_to_wait(held: Callable[[Talk], None]) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        first, second = await connect(), await connect()
        first.say(RUN, SENT[0])
        assert await first.hear() == SendCode()
        second.say(msgspec.structs.replace(RUN, digest=hashlib.sha256(b"other").hexdigest(), by="bob"))
        assert await second.hear() == NotRun("another command sends code", later=True)
        first.say(*SENT[1:])
        assert await first.hear() == Begun(1)
        assert gang.code.piece(RUN.digest, 0) == CODE
        gang.ended.set_result(OVER)
        assert await first.hear() == Over(3, 7, "rank 1 failed")

    held(talk)


@pytest.mark.parametrize("gone", [False, True], ids=["interrupted", "gone"])
def test_who_interrupts_a_program_or_goes_away_ends_its_ranks(held: Callable[[Talk], None], *, gone: bool) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        command = await connect()
        command.say(RUN, *SENT)
        assert [await command.hear(), await command.hear()] == [SendCode(), Begun(1)]
        if gone:
            command.writer.write_eof()
        else:
            command.say(RUN, Interrupt())  # Another word is none that ends it.
        assert await command.hear() == Over(3, 7, "rank 1 failed")
        assert (set(gang.interrupted), gang.lost[0]) == ({1}, gone)

    held(talk)


def test_ranks_may_save_before_they_are_ended(held: Callable[[Talk], None]) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        gang.grace = patience(20)
        command = await connect()
        command.say(RUN, *SENT, LetFinish(), LetFinish())
        assert [await command.hear(), await command.hear()] == [SendCode(), Begun(1)]
        await gang.saving.wait()
        assert gang.interrupted == []
        gang.ended.set_result(OVER)
        assert await command.hear() == Over(3, 7, "rank 1 failed")

    held(talk)


def test_ranks_that_save_for_longer_than_the_grace_period_are_ended(held: Callable[[Talk], None]) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        command = await connect()
        command.say(RUN, *SENT, LetFinish())
        assert [await command.hear() for _ in range(3)] == [SendCode(), Begun(1), Over(3, 7, "rank 1 failed")]
        assert (gang.finishing, set(gang.interrupted)) == ([1], {1})

    held(talk)


def test_while_a_program_runs_that_is_said_again_and_again(
    held: Callable[[Talk], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "GOING_SECONDS", 0.01)

    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        command = await connect()
        command.say(RUN, *SENT)
        assert [await command.hear() for _ in range(4)] == [SendCode(), Begun(1), Going(), Going()]
        assert gang.interrupted == []

    held(talk)


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        ([TheCode(CODE)], NotRun("the command's first line is not a program")),
        (
            [msgspec.structs.replace(RUN, version=VERSION + 1)],
            NotRun(
                f"the command speaks version {VERSION + 1} of this protocol, and the image version {VERSION}: use the"
                " ddpjob of the image's release"
            ),
        ),
        (
            [msgspec.structs.replace(RUN, words=())],
            NotRun("no program is given: name a script, or a module after -m"),
        ),
        (
            [RUN, TheCode(b"another"), TheCode(b"")],
            NotRun("the code that arrived is not the code that was announced"),
        ),
        ([RUN, Interrupt()], NotRun("the code that arrived is not the code that was announced")),
        ([RUN, TheCode(bytes(9))], NotRun("the code has more than 8 bytes")),
        ([msgspec.structs.replace(RUN, digest="x")], NotRun("the code's digest is not a SHA-256")),
        ([RUN], NotRun("the command's line is not valid: IncompleteReadError")),
        ([], NotRun("the command's line is not valid: IncompleteReadError")),
    ],
    ids=[
        "no program",
        "a newer command",
        "no words",
        "other code",
        "no code",
        "too much",
        "no digest",
        "no second line",
        "none",
    ],
)
def test_what_cannot_be_run_is_answered_with_the_reason(
    held: Callable[[Talk], None], monkeypatch: pytest.MonkeyPatch, said: list[Question], answered: Answer
) -> None:
    monkeypatch.setattr(sent_code, "MOST_PACKED", 8)

    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        command = await connect()
        command.say(*said)
        command.writer.write_eof()
        if said and isinstance(said[0], RunProgram) and said[0].words == RUN.words and said[0].version == VERSION:
            assert await command.hear() == SendCode()
        assert await command.hear() == answered
        assert gang.runs == []

    held(talk)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"kind": "RunProgram", "new": ' + "[" * 100_000], ids=["it", "in it"]
)
def test_a_line_that_is_nested_too_deeply_is_answered_as_any_other_that_is_not_valid(
    held: Callable[[Talk], None], line: str
) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        command = await connect()
        command.writer.write(f"{line}\n".encode())
        answer = await command.hear()
        assert isinstance(answer, NotRun)
        assert answer.why.startswith("the command's line is not valid: ")
        assert gang.runs == []

    held(talk)


@pytest.mark.parametrize("later", [True, False])
def test_a_gang_that_cannot_run_a_program_says_whether_it_soon_can(
    held: Callable[[Talk], None], *, later: bool
) -> None:
    async def talk(gang: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        gang.busy = NotReadyError("train.py runs here", later=later)
        command = await connect()
        command.say(RUN)
        assert await command.hear() == NotRun("train.py runs here", later=later)

    held(talk)


def test_who_says_nothing_is_not_waited_for(held: Callable[[Talk], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "SPEAKING_SECONDS", 0.01)

    async def talk(_: Gang, connect: Callable[[], Awaitable[Command]]) -> None:
        assert await (await connect()).hear() == NotRun("the command's next line did not arrive in time")

    held(talk)


def test_a_socket_that_cannot_be_made_is_an_error_with_its_place(tmp_path: Path) -> None:
    async def receive() -> None:
        async with reception.reception(tmp_path / "nowhere", "u", Gang(), tmp_path / "heartbeat"):  # type: ignore[arg-type]
            pass

    with pytest.raises(StorageError, match=rf"cannot create the socket {tmp_path}/nowhere/hold-.* for programs: "):
        asyncio.run(receive())
