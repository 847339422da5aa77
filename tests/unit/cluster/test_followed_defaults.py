"""What the operator makes of the ConfigMap with the organisation's defaults: good, broken, missing, and away."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from ddpjob_operator.api import NO_DEFAULTS, Defaults
from ddpjob_operator.cluster import followed_defaults
from ddpjob_operator.cluster.followed_defaults import DefaultsUnknownError, FollowedDefaults
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.kube.objects import ConfigMapObject, Object, ObjectMeta
from ddpjob_operator.cluster.serve.metrics import REGISTRY
from ddpjob_operator.engine import Event

from tests.support import virtual_time

WHERE = ("system", "ddpjob-defaults")
GOOD, BETTER, BROKEN = "[{name: all, image: a}]", "[{name: all, image: b}]", "[{name: all, imag: c}]"
SELECTING = "[{name: blue, image: b, namespaceSelector: {matchLabels: {team: blue}}}]"
FORBIDDEN = ApiError(403, "Forbidden", "namespaces is forbidden")
BUSY = ApiError(503, "ServiceUnavailable", "later")


class Scene(ApiClient):
    """An API server with one ConfigMap, and what the operator made of it."""

    def __init__(self, text: str | None) -> None:
        self.version = 1
        self.there = None if text is None else self.config_map(text)
        self.news = asyncio.Queue[tuple[str, ConfigMapObject]]()
        self.namespaces: dict[str, dict[str, str] | ApiError] = {}
        self.asked: list[str] = []
        """What was read, with its selectors."""
        self.forbidden = False
        self.looks = 0
        self.events: list[tuple[str, Event]] = []
        self.defaults = FollowedDefaults(self, WHERE, changed=self.look, record=self.record)

    def config_map(self, text: str | None, key: str = followed_defaults.DATA_KEY) -> ConfigMapObject:
        self.version += 1
        meta = ObjectMeta(name=WHERE[1], namespace=WHERE[0], uid="uid-1", resource_version=str(self.version))
        return ConfigMapObject(metadata=meta, data={} if text is None else {key: text})

    def look(self) -> None:
        self.looks += 1

    def record(self, seen: ObjectMeta, event: Event) -> None:
        self.events.append((seen.name, event))

    async def list(self, resource: Any, namespace: Any, labels: str = "", *, fields: str = "") -> Any:
        self.asked.append(f"list {resource} {namespace} {labels}{fields}")
        if self.forbidden:
            raise ApiError(403, "Forbidden", "configmaps is forbidden")
        return [self.there] if self.there else [], self.version

    async def watch(
        self, resource: Any, namespace: Any, labels: str, _: int, *, fields: str = ""
    ) -> AsyncGenerator[Any]:
        self.asked.append(f"watch {resource} {namespace} {labels}{fields}")
        while True:
            yield await self.news.get()

    async def get(self, resource: Any, _: Any, name: str) -> Any:
        self.asked.append(f"get {resource} {name}")
        found = self.namespaces.get(name)
        if isinstance(found, ApiError):
            raise found
        return None if found is None else Object(metadata=ObjectMeta(name=name, labels=found))

    async def changes(self, text: str | None, kind: str = "MODIFIED", **key: str) -> None:
        await self.news.put((kind, self.config_map(text, **key)))
        await asyncio.sleep(1)

    async def image(self, namespace: str = "team") -> str | None:
        return (await self.defaults.of(namespace)).image


def played(play: Callable[[Scene], Awaitable[None]], text: str | None = GOOD, *, forbidden: bool = False) -> Scene:
    """Lets the operator follow the ConfigMap for as long as the play lasts."""

    async def whole() -> Scene:
        scene = Scene(text)
        scene.forbidden = forbidden
        following = asyncio.create_task(scene.defaults.run())
        await scene.defaults.first_read()
        await play(scene)
        assert not following.done()
        following.cancel()
        return scene

    return virtual_time.run(whole())


def valid() -> float | None:
    return REGISTRY.get_sample_value("ddpjob_defaults_valid")


def test_a_change_counts_at_once_and_all_jobs_are_looked_at() -> None:
    async def play(scene: Scene) -> None:
        assert (await scene.image(), scene.looks) == ("a", 1)
        await scene.changes(BETTER)
        assert (await scene.image(), scene.looks, valid()) == ("b", 2, 1)
        await scene.changes(BETTER + "# only a comment")
        assert scene.looks == 2

    scene = played(play)
    name = f"metadata.name={WHERE[1]}"
    assert scene.asked == [f"list configmaps system {name}", f"watch configmaps system {name}"], "no other is read"


def test_an_operator_that_may_not_read_the_defaults_says_so_until_it_may() -> None:
    async def play(scene: Scene) -> None:
        with pytest.raises(DefaultsUnknownError, match="cannot be read: the operator may not list and watch"):
            await scene.image()
        assert valid() == 0
        assert "may not list and watch" in scene.defaults.problem
        scene.forbidden = False
        await asyncio.sleep(120)
        assert (await scene.image(), valid(), scene.defaults.problem) == ("a", 1, "")

    played(play, forbidden=True)


def test_of_a_version_that_is_not_understood_everybody_is_told_and_the_last_good_one_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(scene: Scene) -> None:
        await scene.changes(BROKEN)
        assert (await scene.image(), valid()) == ("a", 0)
        told = "[0].imag: unknown field; did you mean image?"
        assert told in scene.defaults.problem
        ((about, event),) = scene.events
        assert (about, event.warning, event.reason) == (WHERE[1], True, "DefaultsRefused")
        assert event.message.endswith("the last valid version stays in use")
        assert told in event.message
        assert told in caplog.text
        await scene.changes(BROKEN + "# still")
        assert len(scene.events) == 1
        await scene.changes(BETTER)
        assert (await scene.image(), valid(), scene.defaults.problem) == ("b", 1, "")

    caplog.set_level(logging.INFO)
    played(play)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (BROKEN, "unknown field"),
        (None, "The defaults (ConfigMap system/ddpjob-defaults) do not exist"),
    ],
    ids=["broken", "missing"],
)
def test_without_any_good_version_no_defaults_are_known_until_there_is_one(first: str | None, told: str) -> None:
    async def play(scene: Scene) -> None:
        with pytest.raises(DefaultsUnknownError, match=r".*") as error:
            await scene.image()
        assert told in str(error.value)
        assert valid() == 0
        await scene.changes(GOOD, "MODIFIED" if first else "ADDED")
        assert await scene.image() == "a"

    played(play, first)


def test_if_the_config_map_is_deleted_or_loses_its_key_the_last_good_version_stays() -> None:
    async def play(scene: Scene) -> None:
        await scene.changes(GOOD, key="default.yaml")
        assert "have no key defaults.yaml" in scene.defaults.problem
        assert await scene.image() == "a"
        await scene.changes(GOOD, "DELETED")
        assert "do not exist" in scene.defaults.problem
        assert await scene.image() == "a"

    played(play)


def test_a_long_problem_is_cut_for_jobs_and_events() -> None:
    async def play(scene: Scene) -> None:
        with pytest.raises(DefaultsUnknownError) as error:
            await scene.image()
        assert len(str(error.value)) <= followed_defaults.LONGEST_PROBLEM
        assert len(scene.events[0][1].message) <= 1024

    played(play, f"[{{name: a, {', '.join(f'x{number}: 1' for number in range(200))}}}]")


def test_only_entries_that_select_namespaces_cost_a_read_of_the_namespace_and_one_for_a_while() -> None:
    async def play(scene: Scene) -> None:
        scene.namespaces = {"blue": {"team": "blue"}, "red": {"team": "red"}}
        assert await scene.image("blue") == "a"
        await scene.changes(SELECTING)
        assert [await scene.image(name) for name in ("blue", "red", "blue", "gone")] == ["b", None, "b", None]

    scene = played(play)
    assert [line for line in scene.asked if line.startswith("get")] == [
        "get namespaces blue",
        "get namespaces red",
        "get namespaces gone",
    ]


def test_a_namespace_that_may_not_be_read_leaves_its_defaults_unknown() -> None:
    async def play(scene: Scene) -> None:
        scene.namespaces = {"blue": FORBIDDEN, "red": BUSY}
        with pytest.raises(DefaultsUnknownError, match="Cannot read the labels of namespace blue"):
            await scene.image("blue")
        with pytest.raises(ApiError):
            await scene.image("red")

    played(play, SELECTING)


def test_an_operator_without_a_config_map_has_no_defaults_and_asks_for_none() -> None:
    async def whole() -> Defaults:
        scene = Scene(GOOD)
        defaults = FollowedDefaults(scene, None, changed=scene.look, record=scene.record)
        following = asyncio.create_task(defaults.run())
        await defaults.first_read()
        found = await defaults.of("team")
        assert (following.done(), scene.asked) == (False, [])
        following.cancel()
        return found

    assert virtual_time.run(whole()) == NO_DEFAULTS


def test_the_first_read_is_not_waited_for_for_ever() -> None:
    async def whole() -> float:
        scene = Scene(GOOD)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await scene.defaults.first_read()
        with pytest.raises(DefaultsUnknownError, match="have not been read yet"):
            await scene.image()
        return loop.time() - began

    assert virtual_time.run(whole()) == pytest.approx(followed_defaults.FIRST_READ_SECONDS, abs=0.1)
