"""When namespaces are looked at, opened and closed, each for itself."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.kube.objects import Object, ObjectMeta
from ddpjob_operator.cluster.namespaces import READ_AT_ONCE, Namespaces
from ddpjob_operator.cluster.serve.metrics import REGISTRY

from tests.support import virtual_time

Obstacle = Callable[[], Awaitable[Any]]

EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
BUSY = ApiError(503, "ServiceUnavailable", "it cannot be listed now")


class Scene(ApiClient):
    """An API server with namespaces, and what the operator made of them."""

    def __init__(self, *named: str) -> None:
        self.there = set(named)
        self.lacking: set[str] = set()
        """Where the operator has no rights."""
        self.looks: list[tuple[str, float]] = []
        """At which namespace it has looked, and when."""
        self.entered: Counter[str] = Counter()
        self.left: list[str] = []
        self.obstacles: dict[str, Obstacle] = {}
        """What happens where it reads a namespace."""
        self.namespaces = Namespaces(
            self, [*named], "" if named else "team", enter=self.enter, leave=self.left.append
        )

    async def rules(self, namespace: str) -> tuple[list[dict[str, Any]], bool]:
        self.looks.append((namespace, asyncio.get_running_loop().time()))
        return [] if namespace in self.lacking else [EVERYTHING], False

    async def allowed(self, _: Any) -> bool:
        return True

    async def get(self, *path: Any) -> Any:
        return {} if path[-1] in self.there else None

    async def list(self, *_: Any, **__: Any) -> Any:
        return [], 1

    async def watch(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()
        yield

    async def enter(self, name: str) -> None:
        self.entered[name] += 1
        if name in self.obstacles:
            await self.obstacles[name]()

    def label(self, name: str, version: int) -> None:
        meta = ObjectMeta(name=name, uid=f"uid-{name}", resource_version=str(version))
        self.namespaces._selected.update(Object(metadata=meta))

    def unlabel(self, name: str, version: int) -> None:
        self.namespaces._selected.forget(("", name), f"uid-{name}", version)


def played(play: Callable[[Scene], Awaitable[None]], *named: str, missing: str = "") -> Scene:
    """Has the operator look after those that are named, or have the label, for as long as the play lasts."""

    async def whole() -> Scene:
        scene = Scene(*named)
        scene.there -= set(missing.split())
        await scene.namespaces.begin()
        running = asyncio.create_task(scene.namespaces.run())
        await asyncio.sleep(1)
        await play(scene)
        assert not running.done()
        running.cancel()
        return scene

    return virtual_time.run(whole())


async def refuse() -> None:
    raise BUSY


async def never_answer() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("obstacle", [refuse, never_answer])
def test_one_that_cannot_be_opened_keeps_no_other_waiting(obstacle: Obstacle) -> None:
    async def play(scene: Scene) -> None:
        scene.obstacles["bad"] = obstacle
        scene.label("bad", 2)
        await asyncio.sleep(300)
        scene.label("good", 3)
        await asyncio.sleep(1)
        assert [scene.namespaces.serves(name) for name in ("bad", "good")] == [obstacle is never_answer, True]

    played(play)


def test_one_that_can_be_read_after_all_is_opened() -> None:
    async def play(scene: Scene) -> None:
        scene.obstacles["blue"] = refuse
        scene.label("blue", 2)
        await asyncio.sleep(300)
        assert not scene.namespaces.serves("blue")
        assert 10 <= scene.entered["blue"] <= 20, "it is tried less and less often, in the end each half a minute"
        del scene.obstacles["blue"]
        await asyncio.sleep(46)
        assert scene.namespaces.serves("blue")

    played(play)


def test_one_that_cannot_be_opened_and_loses_its_label_is_not_tried_again() -> None:
    async def play(scene: Scene) -> None:
        scene.obstacles["blue"] = refuse
        scene.label("blue", 2)
        await asyncio.sleep(10)
        scene.unlabel("blue", 3)
        tries = scene.entered["blue"]
        await asyncio.sleep(300)
        assert scene.entered["blue"] == tries > 1

    played(play)


def test_one_that_loses_its_label_while_it_is_opened_is_left_and_opened_anew_once_it_has_it_again() -> None:
    async def play(scene: Scene) -> None:
        scene.obstacles["blue"] = never_answer
        scene.label("blue", 2)
        await asyncio.sleep(1)
        scene.unlabel("blue", 3)
        await asyncio.sleep(1)
        assert (scene.namespaces.serves("blue"), scene.left) == (False, ["blue"])
        del scene.obstacles["blue"]
        scene.label("blue", 4)
        await asyncio.sleep(1)
        assert (scene.namespaces.serves("blue"), scene.entered["blue"]) == (True, 2)

    played(play)


def test_of_many_that_get_the_label_together_only_some_are_read_at_once() -> None:
    async def play(scene: Scene) -> None:
        for number in range(2 * READ_AT_ONCE):
            scene.obstacles[f"team-{number}"] = lambda: asyncio.sleep(10)
            scene.label(f"team-{number}", 2 + number)
        await asyncio.sleep(5)
        assert scene.entered.total() == READ_AT_ONCE
        await asyncio.sleep(20)
        assert scene.entered.total() == 2 * READ_AT_ONCE

    played(play)


def test_a_closed_one_is_looked_at_every_ten_seconds_and_no_other_for_it() -> None:
    async def play(scene: Scene) -> None:
        await asyncio.sleep(10)
        scene.looks.clear()
        await asyncio.sleep(100)
        assert {name for name, _ in scene.looks} == {"green"}
        times = [time for _, time in scene.looks]
        assert all(9 < after - before < 11 for before, after in pairwise(times))
        assert len(times) >= 9
        scene.there.add("green")
        await asyncio.sleep(11)
        assert (scene.namespaces.serves("green"), scene.namespaces.problems) == (True, "")

    played(play, "blue", "green", missing="green")


def test_one_whose_watch_is_refused_is_closed_and_the_others_go_on() -> None:
    async def play(scene: Scene) -> None:
        scene.lacking.add("green")
        await asyncio.sleep(100)
        assert scene.namespaces.serves("green"), "nobody has asked"
        scene.namespaces.check_soon()  # As a watch that is refused does.
        await asyncio.sleep(1)
        assert [scene.namespaces.serves(name) for name in ("blue", "green")] == [True, False]
        assert scene.left == ["green"]
        names = ({"namespace": name} for name in ("blue", "green"))
        assert [REGISTRY.get_sample_value("ddpjob_namespace_watched", name) for name in names] == [1, 0]
        assert scene.namespaces.problems.startswith("namespace green: the operator is not allowed to ")

    played(play, "blue", "green")


def test_one_that_is_closed_while_it_is_opened_stays_closed_until_the_next_look() -> None:
    async def play(scene: Scene) -> None:
        async def close() -> None:
            del scene.obstacles["green"]
            scene.namespaces.close("green", "a list was refused")

        scene.obstacles["green"] = close
        scene.there.add("green")
        await asyncio.sleep(11)
        assert (scene.namespaces.serves("green"), scene.entered["green"]) == (False, 1)
        assert scene.namespaces.problems == "namespace green: a list was refused"
        await asyncio.sleep(11)
        assert (scene.namespaces.serves("green"), scene.entered["green"]) == (True, 2)

    played(play, "blue", "green", missing="green")


def test_where_all_are_closed_no_jobs_are_watched_until_one_is_opened_and_the_next_one_begins_a_new_watch() -> None:
    async def play(scene: Scene) -> None:
        ends: list[str] = []
        choosing = asyncio.create_task(scene.namespaces.choose(lambda: ends.append("first")))
        await asyncio.sleep(20)
        assert not choosing.done()
        scene.there.add("green")
        assert await asyncio.wait_for(choosing, 12) == ["green"]
        scene.there.add("blue")
        await asyncio.sleep(11)
        assert ends == ["first"]
        assert await scene.namespaces.choose(lambda: ends.append("second")) == ["blue", "green"]
        await asyncio.sleep(20)
        assert ends == ["first"]
        scene.lacking.add("green")
        assert await scene.namespaces.choose(lambda: None) == ["blue"], "perhaps that has ended the watch"

    played(play, "green", "blue", missing="green blue")


def test_all_are_watched_at_once_where_none_is_named() -> None:
    async def play(scene: Scene) -> None:
        assert await scene.namespaces.choose(lambda: None) == []

    played(play)


def test_while_all_that_are_named_are_closed_it_is_not_ready_and_one_that_cannot_be_read_stays_closed() -> None:
    async def play(scene: Scene) -> None:
        assert scene.namespaces.why_not_ready == "waiting for the namespaces"
        scene.there.add("blue")
        scene.obstacles["blue"] = refuse
        await asyncio.sleep(20)
        assert scene.namespaces.problems == f"namespace blue: {BUSY}"
        assert not scene.namespaces.serves("blue")
        del scene.obstacles["blue"]
        await asyncio.sleep(20)
        assert (scene.namespaces.why_not_ready, scene.namespaces.problems) == ("", "")

    played(play, "blue", missing="blue")


def test_where_none_is_named_it_is_ready_at_once() -> None:
    async def play(scene: Scene) -> None:
        assert scene.namespaces.why_not_ready == ""

    played(play)


def test_those_that_have_the_label_already_are_opened_at_the_start() -> None:
    async def play() -> None:
        scene = Scene()
        scene.namespaces._reflector = SimpleNamespace(list=AsyncMock(side_effect=lambda: scene.label("blue", 1)))  # type: ignore[assignment]
        assert await scene.namespaces.begin() == []
        assert scene.entered == {"blue": 1}

    virtual_time.run(play())


def test_where_all_are_served_there_is_nothing_to_keep_track_of_and_that_goes_on() -> None:
    async def play() -> None:
        enter, leave = AsyncMock(), [].append
        following = asyncio.create_task(Namespaces(Scene(), [], "", enter=enter, leave=leave).run())
        await asyncio.sleep(60)
        assert not following.done()
        following.cancel()

    virtual_time.run(play())
