"""The address at which rank 0's program posts its progress, asked as Hugging Face's Trainer asks."""

import asyncio
import json
import stat
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpjob_supervisor.watch import post_server as module
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.post_server import PostServer

from tests.support.waiting import patience

DEADLINE_SECONDS = 30.0
DOCUMENT = {"trainerStatus": {"metrics": [{"name": "total_steps", "value": "400"}, {"name": "loss", "value": "0.5"}]}}


def post(env: dict[str, str], body: bytes | None = None, *, method: str = "POST", token: str | None = None) -> int:
    """Posts as the environment says, with the token of its file; the status of the answer."""
    body = json.dumps(DOCUMENT).encode() if body is None else body
    proof = Path(env[module.TOKEN]).read_text() if token is None else token
    headers = {"Authorization": f"Bearer {proof}", "Content-Type": "application/json"}
    request = urllib.request.Request(env[module.URL], data=body, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=patience(DEADLINE_SECONDS)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code


def asked(directory: Path, ask: Callable[[PostServer, dict[str, str]], int]) -> tuple[int, Beat | None]:
    """What a client in a thread is answered in the first attempt, and what rank 0 tells after that."""

    async def serve() -> tuple[int, Beat | None]:
        async with PostServer(directory) as posts, asyncio.timeout(patience(DEADLINE_SECONDS)):
            posts.begin(1, lambda: None)
            status = await asyncio.to_thread(ask, posts, posts.env({}))
            return status, posts.merged(None)

    return asyncio.run(serve())


def test_who_has_the_token_is_believed(tmp_path: Path) -> None:
    status, beat = asked(tmp_path, lambda _, env: post(env))
    assert status == 200
    assert beat
    assert (beat.attempt, beat.total_steps, beat.loss) == (1, 400, 0.5)


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (lambda _, env: post(env, token="guessed"), 401),
        (lambda _, env: post(env, token="gu\xefssed"), 401),
        (lambda _, env: post({**env, module.URL: env[module.URL] + "0"}), 404),
        (lambda posts, env: posts.begin(2, lambda: None) or post(env), 404),
        (lambda _, env: post(env, method="PUT"), 405),
        (lambda _, env: post(env, b"x" * (module.BODY_BYTES + 1)), 413),
        (lambda _, env: post(env, b"{}"), 400),
    ],
    ids=["a guess", "not in ASCII", "another path", "a former attempt", "PUT", "too much", "something else"],
)
def test_who_has_not_or_says_something_else_is_refused(
    tmp_path: Path, ask: Callable[[PostServer, dict[str, str]], int], status: int
) -> None:
    assert asked(tmp_path, ask) == (status, None)


def test_who_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 0.05)

    async def slow() -> bytes:
        async with PostServer(tmp_path) as posts, asyncio.timeout(patience(DEADLINE_SECONDS)):
            posts.begin(1, lambda: None)
            port = int(posts.env({})[module.URL].split(":")[2].split("/")[0])
            reader, writer = await asyncio.open_connection(module.LOOPBACK, port)
            token = (tmp_path / "token").read_text()
            proof = f"Authorization: Bearer {token}"
            writer.write(f"POST /attempts/1 HTTP/1.1\r\nHost: here\r\n{proof}\r\nContent-Length: 9\r\n\r\n".encode())
            try:
                return await reader.readline()
            finally:
                writer.close()

    assert b" 408 " in asyncio.run(slow())


def test_it_listens_on_this_machine_only_and_its_token_is_this_users(tmp_path: Path) -> None:
    async def look() -> tuple[str, int]:
        async with PostServer(tmp_path) as posts:
            assert posts._listener
            return posts._listener.getsockname()[0], stat.S_IMODE((tmp_path / "token").stat().st_mode)

    assert asyncio.run(look()) == ("127.0.0.1", 0o600)


@pytest.mark.parametrize(
    ("env", "spared"),
    [
        ({}, None),
        ({"http_proxy": "http://proxy"}, "127.0.0.1"),
        ({"HTTP_PROXY": "http://proxy", "NO_PROXY": ".example"}, ".example,127.0.0.1"),
        ({"all_proxy": "http://proxy", "no_proxy": "a", "NO_PROXY": "b"}, "a,127.0.0.1"),
    ],
    ids=str,
)
def test_a_proxy_is_not_asked_for_this_machine(tmp_path: Path, env: dict[str, str], spared: str | None) -> None:
    async def look() -> dict[str, str]:
        async with PostServer(tmp_path) as posts:
            return posts.env(env)

    assert asyncio.run(look()).get("no_proxy") == spared


def test_a_program_that_is_led_elsewhere_goes_there(tmp_path: Path) -> None:
    async def look() -> dict[str, str]:
        async with PostServer(tmp_path) as posts:
            return posts.env({module.URL: "https://kubeflow"})

    assert asyncio.run(look()) == {}
