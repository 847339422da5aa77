"""The image of a job whose template names none: the one that the administrator has set when it first starts."""

from typing import Any

from ddpjob_operator.api import ConditionType
from ddpjob_operator.engine import CreatePod

from .builders import NO_IMAGE, Moment, a_job, plan
from .tables import Table, rows, verdict

TRAINER = {"name": "trainer"}


def nameless(*init: dict[str, Any], **trainer: Any) -> Moment:
    """A job whose trainer has no image, unless these fields name one."""
    containers = {"containers": [{**TRAINER, **trainer}], "initContainers": list(init)}
    return a_job(nodes=2, template={"spec": containers})


def with_default(moment: Moment, image: str) -> Moment:
    return moment.allows(trainer_image=image)


def images(moment: Moment, rank: int = 0) -> dict[str, str]:
    pods = (
        action.build() for action in moment.decision.actions if isinstance(action, CreatePod) and action.node == rank
    )
    pod = next(pods)["spec"]
    return {one["name"]: one["image"] for one in [*pod["initContainers"], *pod["containers"]]}


def test_a_job_that_names_no_image_gets_the_administrators() -> None:
    moment = with_default(nameless({"name": "unpack"}, {"name": "fetch", "image": "fetch:2"}), "ours:1")
    assert images(moment, rank=1) == {
        "unpack": "ours:1",
        "fetch": "fetch:2",
        "wait-for-master": "ours:1",
        "trainer": "ours:1",
    }
    assert moment.decided().status.trainer_image == "ours:1"


def test_what_the_template_names_wins_also_for_containers_beside_it() -> None:
    moment = with_default(nameless({"name": "unpack"}, image="mine:3"), "ours:1")
    assert images(moment) == {"unpack": "mine:3", "trainer": "mine:3"}
    assert moment.decided().status.trainer_image is None


def test_a_job_keeps_the_image_that_it_started_with() -> None:
    running = with_default(with_default(nameless(), "ours:1").running(), "ours:2")
    assert running.decision.empty
    assert images(running.fails(1).decided().gone().after(1))["trainer"] == "ours:1"
    resumed = running.asks(suspend=True).decided().gone().decided().asks(suspend=False)
    assert images(resumed)["trainer"] == "ours:1"


TABLE: Table = {
    "without either it waits and says what would help": (nameless(), "", "Pending", NO_IMAGE),
    "a name without a letter is none": (nameless(image=""), "", "Pending", NO_IMAGE),
}


@rows(TABLE)
def test_a_job_without_an_image(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_it_starts_as_soon_as_an_operator_has_an_image() -> None:
    waiting = nameless().decided()
    assert waiting.condition(ConditionType.BLOCKED).reason == "ImageMissing"
    assert waiting.decision.empty
    assert plan(with_default(waiting, "ours:1")) == "service +1.0 +1.1"


def test_it_waits_no_longer_than_it_is_given_to_start() -> None:
    waiting = nameless().asks(startDeadlineSeconds=60).decided()
    assert waiting.after(61).settled().status.state == "Failed"
