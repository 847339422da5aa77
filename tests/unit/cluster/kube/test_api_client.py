"""What an API server is asked, and what is made of its answers, also of those that cannot be read."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cluster.kube.api_client import PAGE_BYTES, PODS, ApiClient, ApiError, FencedError, StuckError
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.kube.objects import Unreadable

from tests.unit.cluster.counting import counts
from tests.unit.cluster.manifests import a_manifest, name_of

TOO_DEEP = b'{"metadata": {}, "spec": {"unknown": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"


class Answering(Connection):
    """The connection to a server that always answers the same."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        return 200, self._answer, None

    @asynccontextmanager
    async def stream(self, *_: Any) -> AsyncIterator[Any]:
        async def parts() -> AsyncIterator[bytes]:
            yield self._answer + b"\n"

        yield SimpleNamespace(status=200, content=SimpleNamespace(iter_any=parts))


def api(answer: bytes) -> ApiClient:
    return ApiClient(Answering(answer), lambda: True)


def broken() -> dict[str, Any]:
    """A pod with a date that is none."""
    pod = a_manifest(rank=1)
    pod["metadata"]["creationTimestamp"] = "yesterday"
    return pod


async def watched(answer: bytes) -> list[tuple[str, Any]]:
    return [change async for change in api(answer).watch(PODS, "team", "", 1)]


def test_one_object_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    items = [a_manifest(rank=0), broken(), a_manifest(rank=2)]
    answer = json.dumps({"metadata": {"resourceVersion": "7"}, "items": items}).encode()
    with caplog.at_level(logging.ERROR), counts("ddpjob_unreadable_objects_total", resource="pods"):
        pods, version = asyncio.run(api(answer).list(PODS, "team"))
    assert ([pod.metadata.name for pod in pods], version) == ([name_of(rank) for rank in range(3)], 7)
    assert [isinstance(pod, Unreadable) for pod in pods] == [False, True, False]
    assert len(caplog.messages) == 1
    assert "pods: an object is ignored: the API server's answer cannot be read: Invalid RFC3339" in caplog.text
    assert f"$.metadata.creationTimestamp`: team/{name_of(1)}" in caplog.text


@pytest.mark.parametrize("answer", [b"<html>", b"{}", TOO_DEEP], ids=["a page", "nothing", "too deep"])
def test_an_answer_that_cannot_be_read_is_an_answer_of_nobody_s(answer: bytes) -> None:
    answered = counts("ddpjob_api_requests_total", method="GET", resource="pods", code="200")
    with answered, pytest.raises(ApiError, match="cannot be read") as error:
        asyncio.run(api(answer).get(PODS, "team", "digits-0-1"))
    assert error.value.passing
    assert len(error.value.message) < 300


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "MODIFIED", "object": {"metadata": 7}}, "cannot be read"),
        ({"type": "ERROR", "object": {"code": 500, "message": "cannot be encoded"}}, "cannot be encoded"),
        ({"type": "ERROR", "object": {"code": "five hundred"}}, "cannot be read"),
        ({"kind": "Status"}, "cannot be read"),
    ],
)
def test_a_watch_does_not_get_past_what_it_cannot_read(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StuckError, match=message):
        asyncio.run(watched(json.dumps(change).encode()))


def test_a_watch_gets_past_an_object_that_cannot_be_read() -> None:
    changes = [{"type": "MODIFIED", "object": one} for one in (broken(), a_manifest(rank=2))]
    (_, first), (_, second) = asyncio.run(watched(b"\n".join(json.dumps(one).encode() for one in changes)))
    assert isinstance(first, Unreadable)
    assert (first.metadata.name, first.metadata.resource_version) == (name_of(1), "1")
    assert second.metadata.name == name_of(2)


class Silent(Connection):
    """The connection to a server that says nothing: aiohttp's error for it may be without a word."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        raise TimeoutError


def test_a_server_that_says_nothing_is_told_by_the_error_s_name() -> None:
    of_no_answer = counts("ddpjob_api_requests_total", method="GET", resource="pods", code="none")
    with of_no_answer, pytest.raises(ApiError, match="API server: TimeoutError"):
        asyncio.run(ApiClient(Silent(), lambda: True).list(PODS, "team"))


class Paging(Connection):
    """The connection to a server with so many pods of a size, which sends as many at once as it is asked for."""

    def __init__(self, count: int, size: int) -> None:
        self._pods = [{**a_manifest(rank=rank), "data": "x" * size} for rank in range(count)]
        self.pages: list[int] = []

    async def send(self, *_: Any, params: dict[str, str], **__: Any) -> tuple[int, bytes, None]:
        first = int(params.get("continue", "0"))
        last = first + int(params["limit"])
        rest = str(last) if last < len(self._pods) else ""
        page = {"metadata": {"resourceVersion": "7", "continue": rest}, "items": self._pods[first:last]}
        answer = json.dumps(page).encode()
        self.pages.append(len(answer))
        return 200, answer, None


@pytest.mark.parametrize(("count", "size", "pages"), [(560, 100, 3), (250, 91 << 10, 7), (30, 1 << 20, 5)])
def test_a_page_of_a_list_has_as_many_objects_as_make_some_megabytes(count: int, size: int, pages: int) -> None:
    server = Paging(count, size)
    pods, _ = asyncio.run(ApiClient(server, lambda: True).list(PODS, "team"))
    assert [pod.metadata.name for pod in pods] == [name_of(rank) for rank in range(count)]
    assert max(server.pages[1:]) <= PAGE_BYTES
    assert len(server.pages) == pages


class Recording(Connection):
    """The connection to a server that answers so, in turn, and what it was asked."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str, Any]] = []

    async def send(self, method: str, path: str, data: bytes | None, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        self.asked.append((method, path, None if data is None else json.loads(data)))
        status, answer = self._answers.pop(0)
        return status, json.dumps(answer).encode(), None


def asked(act: Callable[[ApiClient], Awaitable[Any]], *answers: tuple[int, Any]) -> tuple[Any, list[Any]]:
    """What comes of a question, and what the server was asked."""
    server = Recording(*answers)

    async def ask() -> Any:
        return await act(ApiClient(server, lambda: True))

    return asyncio.run(ask()), server.asked


JANE = {"username": "jane", "uid": "1", "groups": ["team"], "extra": {"scopes": ["all"]}}
REVIEWED: dict[str, tuple[Callable[[ApiClient], Awaitable[Any]], str, Any, Any, Any]] = {
    "a right": (
        lambda api: api.allowed({"verb": "get"}),
        "SelfSubjectAccessReview",
        {"resourceAttributes": {"verb": "get"}},
        {"allowed": True},
        True,
    ),
    "no right": (
        lambda api: api.allowed({"verb": "get"}),
        "SelfSubjectAccessReview",
        {"resourceAttributes": {"verb": "get"}},
        {"allowed": False},
        False,
    ),
    "whose a token is": (
        lambda api: api.user_of("abc"),
        "TokenReview",
        {"token": "abc"},
        {"authenticated": True, "user": JANE},
        JANE,
    ),
    "nobody's token": (
        lambda api: api.user_of("abc"),
        "TokenReview",
        {"token": "abc"},
        {"user": JANE, "error": "no"},
        None,
    ),
    "what another may read": (
        lambda api: api.may_get(JANE, "/metrics"),
        "SubjectAccessReview",
        {
            "user": "jane",
            "uid": "1",
            "groups": ["team"],
            "extra": {"scopes": ["all"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
        {"allowed": True},
        True,
    ),
    "what somebody unknown may read": (
        lambda api: api.may_get({}, "/metrics"),
        "SubjectAccessReview",
        {
            "user": "",
            "uid": "",
            "groups": [],
            "extra": {},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
        {"allowed": False},
        False,
    ),
    "the rules": (
        lambda api: api.rules("team"),
        "SelfSubjectRulesReview",
        {"namespace": "team"},
        {"resourceRules": [{"verbs": ["*"]}], "incomplete": True},
        ([{"verbs": ["*"]}], True),
    ),
}


@pytest.mark.parametrize(("act", "kind", "spec", "status", "found"), REVIEWED.values(), ids=REVIEWED)
def test_rights_are_reviewed_by_the_server(
    act: Callable[[ApiClient], Awaitable[Any]], kind: str, spec: Any, status: Any, found: Any
) -> None:
    answer, [(method, path, body)] = asked(act, (201, {"status": status}))
    assert answer == found
    assert (method, body["kind"], body["spec"]) == ("POST", kind, spec)
    assert path == f"/apis/{body['apiVersion']}/{kind.lower()}s"


def test_a_status_is_written_only_into_the_version_that_was_read() -> None:
    _, [(method, path, body)] = asked(
        lambda api: api.replace_status(PODS, "team", "digits-0", "7", {"phase": "x"}), (200, a_manifest())
    )
    assert (method, path) == ("PATCH", "/api/v1/namespaces/team/pods/digits-0/status")
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert body == [version, {"op": "add", "path": "/status", "value": {"phase": "x"}}]


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (a_manifest(), True),
        ({"kind": "Status", "metadata": {}, "status": "Success"}, False),
        ({**a_manifest(), "metadata": {**a_manifest()["metadata"], "resourceVersion": ""}}, False),
    ],
    ids=["it is ending", "it is gone", "somebody else has deleted it at the same time"],
)
@pytest.mark.parametrize("grace", [None, 0, 5])
def test_what_is_deleted_is_this_very_object_and_may_be_left_for_a_while(
    answer: Any, grace: int | None, *, left: bool
) -> None:
    ending, [(method, path, body)] = asked(
        lambda api: api.delete(PODS, "team", "digits-0", {"uid": "1"}, grace), (200, answer)
    )
    assert (ending is not None) is left
    assert (method, path) == ("DELETE", "/api/v1/namespaces/team/pods/digits-0")
    assert (body["preconditions"], body.get("gracePeriodSeconds")) == ({"uid": "1"}, grace)
    assert ("gracePeriodSeconds" in body) is (grace is not None)


@pytest.mark.parametrize(("status", "found"), [(200, {"pods", "pods/log"}), (404, set()), (403, None)])
def test_what_a_group_serves_is_nothing_where_there_is_no_such_group(status: int, found: set[str] | None) -> None:
    page = {"resources": [{"name": "pods"}, {"name": "pods/log"}]}
    act = lambda api: api.served("/api/v1")  # noqa: E731  (as those above)
    if found is None:
        with pytest.raises(ApiError):
            asked(act, (status, {"message": "no"}))
    else:
        assert asked(act, (status, page)) == (found, [("GET", "/api/v1", None)])


@pytest.mark.parametrize(("status", "there"), [(200, True), (404, False), (500, None)])
def test_an_object_that_does_not_exist_is_none_and_any_other_error_is_one(status: int, there: bool | None) -> None:  # noqa: FBT001
    answer = a_manifest() if there else {"message": "no"}
    with nullcontext() if there is not None else pytest.raises(ApiError):
        found, _ = asked(lambda api: api.get(PODS, "team", "digits-0"), (status, answer))
        assert (found is not None) is there


def test_an_object_that_cannot_be_read_after_its_deletion_is_not_taken_for_gone() -> None:
    odd = {"metadata": {**a_manifest()["metadata"]}, "spec": 7}
    with pytest.raises(ApiError):
        asked(lambda api: api.delete(PODS, "team", "digits-0", {"uid": "1"}), (200, odd))


class Asked:
    """A server that remembers what it was asked, and answers with a pod."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, ...]] = []

    async def send(
        self, method: str, path: str, data: bytes | None, _: Any, params: Any, headers: dict[str, str]
    ) -> tuple[int, bytes, None]:
        body = None if data is None else json.loads(data)
        kind = headers["Content-Type"].removeprefix("application/")
        self.requests.append((method, path.rpartition("/namespaces/")[2], params, kind, body))
        return (
            200,
            b'{"metadata": {"namespace": "team", "name": "digits-0", "uid": "u", "resourceVersion": "8"}}',
            None,
        )


class Fenced:
    """A connection that asks, as the real one does, whether it may still write."""

    async def send(self, *words: Any, **_: Any) -> None:
        words[3]()


POD, BODY = "team/pods/digits-0", {"a": 1}
OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}}
VERSION = {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
REQUESTS: dict[str, tuple[Callable[[ApiClient], Awaitable[Any]], tuple[Any, ...]]] = {
    "create": (
        lambda api: api.create(PODS, "team", BODY),
        ("POST", "team/pods", {"fieldValidation": "Strict"}, "json", BODY),
    ),
    "replace": (lambda api: api.replace(PODS, "team", "digits-0", BODY), ("PUT", POD, None, "json", BODY)),
    "merge": (
        lambda api: api.merge(PODS, "team", "digits-0", BODY),
        ("PATCH", POD, None, "merge-patch+json", BODY),
    ),
    "patch": (
        lambda api: api.patch(PODS, "team", "digits-0", "7", [BODY]),
        ("PATCH", POD, None, "json-patch+json", [VERSION, BODY]),
    ),
    "replace the status": (
        lambda api: api.replace_status(PODS, "team", "digits-0", "7", BODY),
        (
            *("PATCH", f"{POD}/status", None, "json-patch+json"),
            [VERSION, {"op": "add", "path": "/status", "value": BODY}],
        ),
    ),
    "delete": (
        lambda api: api.delete(PODS, "team", "digits-0", {"uid": "u"}),
        ("DELETE", POD, None, "json", OPTIONS),
    ),
    "delete at once": (
        lambda api: api.delete(PODS, "team", "digits-0", {"uid": "u"}, 0),
        ("DELETE", POD, None, "json", OPTIONS | {"gracePeriodSeconds": 0}),
    ),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_what_a_change_asks_of_the_server(what: str) -> None:
    ask, request = REQUESTS[what]
    server = Asked()

    async def play() -> None:
        await ask(ApiClient(server, lambda: True))  # type: ignore[arg-type]
        with pytest.raises(FencedError):
            await ask(ApiClient(Fenced(), lambda: False))  # type: ignore[arg-type]

    asyncio.run(play())
    assert server.requests == [request]
