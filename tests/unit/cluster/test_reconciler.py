"""Whom an operator listens to beside rank 0's supervisor, and for how long."""

from typing import Any

from ddpjob_operator.cluster.reconciler import Reconciler
from ddpjob_operator.engine import Asked, Heard, Settings

from tests.unit.engine.builders import a_job

KEY = ("team", "digits")


class Ears:
    """Stands in for what listens."""

    def __init__(self) -> None:
        self.asked: Asked | None = None

    def attend(self, _key: object, _uid: str, asked: Asked | None) -> Heard | None:
        self.asked = asked
        return None

    def forget(self, _key: object) -> None:
        self.asked = None


def test_another_supervisor_is_listened_to_as_long_as_rank_0s_is_silent() -> None:
    ears: Any = Ears()
    nothing: Any = None
    reconciler = Reconciler(nothing, nothing, nothing, nothing, hearing=nothing, witnesses=ears, settings=Settings())
    silent = a_job(nodes=2).running().hears().settled().hears_nothing("refused")
    listens_to = []
    for scene in (silent.after(29), silent.after(30), silent.after(40).hears()):
        reconciler._witness(KEY, scene.snapshot)
        listens_to.append(ears.asked and ears.asked.pod)
    assert listens_to == [None, silent.pods[1].name, None]
