"""What a program's bars tell of the steps that there are to be, by real bars of tqdm."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ddpjob
import pytest
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting.bars_seen import Bars
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.heartbeats import Heartbeats
from tqdm import tqdm

from tests.unit.rank.told import a_rank, beat_of

Loader = list[int]


class Here:
    """This process as a rank, whose bars are looked at after each step and each of their own moves."""

    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        self._bars = Bars()
        self._open: list[tqdm[Any]] = []

    def bar(self, iterable: Any, **options: int) -> Iterator[Any]:
        made: tqdm[Any] = tqdm(iterable, file=io.StringIO(), mininterval=0, miniters=1, **options)
        self._open.append(made)
        self._bars.look(made)
        for one in iterable:
            yield one
            made.update(1)
            self._bars.look(made)
        self._open.remove(made)
        made.close()

    def step(self, before: int | None = None) -> None:
        reporting.count_step(before)
        for bar in self._open:
            self._bars.look(bar)

    def told(self) -> tuple[int | None, int | None, int | None]:
        """Step, total and epoch."""
        beat = self.beat
        return beat.step, beat.total_steps, beat.epoch

    @property
    def beat(self) -> Beat:
        return beat_of(self._heartbeats)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Here]:
    with a_rank(monkeypatch, tmp_path) as heartbeats:
        yield Here(heartbeats)


def test_a_bar_over_steps_tells_how_many_there_are_to_be(here: Here) -> None:
    for number in here.bar(range(400)):
        here.step()
        if number == 99:
            break
    assert here.told() == (100, 400, None)


def test_a_bar_over_epochs_tells_it_once_an_epoch_is_over(here: Here) -> None:
    seen = set()
    for _ in here.bar(range(3)):
        for _ in range(50):
            here.step()
            seen.add(here.told()[1:])
    assert seen == {(None, None), (150, 2), (150, 3)}
    assert here.told() == (150, 150, 3)


@pytest.mark.parametrize("unit", [1, 50])
def test_after_a_restart_a_bar_tells_at_which_step_its_program_went_on(
    here: Here, monkeypatch: pytest.MonkeyPatch, unit: int
) -> None:
    monkeypatch.setenv("DDPJOB_ATTEMPT", "2")
    for number in here.bar(range(3, 9), initial=3, total=9):
        for _ in range(unit):
            here.step()
        if number == 5:
            break
    step, total, _ = here.told()
    assert not here.beat.anew
    assert (step, total) == (6 * unit, 9 * unit)
    assert here.beat.first_step is None, "a bar over what is left begins at 0"


def test_the_steps_before_a_restart_that_an_optimizer_knows_are_not_those_of_a_bar(here: Here) -> None:
    for number in here.bar(range(40)):
        here.step(before=880)
        if number == 9:
            break
    assert here.told() == (890, 920, None)


def test_of_two_bars_the_outer_one_is_believed(here: Here) -> None:
    for _ in here.bar(range(3)):
        for _ in here.bar(Loader(range(50))):
            here.step()
    assert here.told() == (150, 150, 3)


def test_a_bar_over_a_loader_is_one_pass_and_tells_no_end(here: Here) -> None:
    for _ in here.bar(Loader(range(50))):
        here.step()
    assert here.told() == (50, None, None)


def test_of_bars_that_follow_each_other_none_tells_the_end(here: Here) -> None:
    for _ in range(2):
        for _ in here.bar(range(50)):
            here.step()
    assert here.told() == (100, None, None)


def test_a_bar_that_moves_without_steps_is_not_believed(here: Here) -> None:
    here.step()
    for _ in here.bar(range(1000)):
        pass
    assert here.told() == (1, None, None)


def test_a_bar_over_parts_of_a_step_tells_how_many_there_are_to_be(here: Here) -> None:
    for number in here.bar(range(400)):
        if number % 4 == 3:
            here.step()
        if number == 199:
            break
    step, total, _ = here.told()
    assert step == 50
    assert total is not None
    assert abs(total - 100) <= 2  # The bar is half a unit behind.


def test_what_a_program_reports_goes_before_its_bars(here: Here) -> None:
    ddpjob.report(step=7, total=70)
    for number in here.bar(range(400)):
        ddpjob.report(step=8 + number)
    assert here.told() == (407, 70, None)


@pytest.mark.parametrize(
    ("postfix", "loss"),
    [
        ("loss=0.25", 0.25),
        ("acc=1, loss=3e-05", 3e-05),
        ("loss=nan", math.nan),
        ("val_loss=1", None),
        ("loss=?", None),
    ],
)
def test_a_loss_behind_a_bar_is_the_loss(here: Here, postfix: str, loss: float | None) -> None:
    bars, bar = Bars(), tqdm(total=10, file=io.StringIO())
    bar.set_postfix_str(postfix, refresh=False)
    bars.look(bar)
    reporting.count_step()
    bar.n = 1
    bars.look(bar)
    bar.close()
    assert here.beat.total_steps == 10
    assert here.beat.loss == pytest.approx(loss, nan_ok=True) if loss is not None else here.beat.loss is None


def test_a_bar_that_is_none_harms_nobody(here: Here) -> None:
    reporting.count_step()
    Bars().look(object())
    Bars().look(None)
    assert here.told() == (1, None, None)
