"""What a program posts of its progress in Kubeflow's protocol, and what of it is believed."""

import json
import math
from typing import Any

import pytest
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.post import METRICS, Post, merged, read_post

NOW = 1000.0
COUNTED = Beat(rank=0, attempt=2, activity="training", step=20, step_age=0.5, counted=True)


def document(percent: Any = None, **metrics: Any) -> bytes:
    """As Hugging Face's Trainer sends it: numbers as texts."""
    told = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    status = {"lastUpdatedTime": "2026-11-24T12:00:00+00:00", "progressPercentage": percent, "metrics": told}
    return json.dumps({"trainerStatus": status}).encode()


def test_a_post_tells_which_step_a_counted_one_is_and_the_count_goes_on_from_there() -> None:
    post = read_post(document(12, current_step=120, total_steps=1000, current_epoch=1.2, loss=0.5), COUNTED, NOW)
    later = Beat(rank=0, attempt=2, activity="training", step=23, step_age=0.25, counted=True, anew=True)
    beat = merged(later, post, 2, NOW + 3)
    assert beat
    assert (beat.step, beat.step_age, beat.counted, beat.anew) == (123, 0.25, False, False)
    assert (beat.total_steps, beat.epoch, beat.loss) == (1000, 2, 0.5)


def test_what_no_other_word_is_known_for_is_a_number_of_the_programs_own() -> None:
    post = read_post(document(1, learning_rate=5e-5, grad_norm="nan", note="warm"), COUNTED, NOW)
    assert post.metrics["learning_rate"] == 5e-5
    assert math.isnan(post.metrics["grad_norm"])
    assert "note" not in post.metrics


def test_before_its_first_step_a_program_is_known_to_be_one_that_makes_steps() -> None:
    beat = merged(None, read_post(document(0, total_steps=1000), None, NOW), 2, NOW)
    assert beat
    assert (beat.attempt, beat.activity, beat.step, beat.total_steps) == (2, "starting", None, 1000)


def test_where_no_steps_are_counted_the_posted_ones_are_as_old_as_their_post() -> None:
    beat = merged(None, read_post(document(3, current_step=30, total_steps=1000), None, NOW), 2, NOW + 4)
    assert beat
    assert (beat.activity, beat.step, beat.step_age) == ("training", 30, 4.0)


def test_a_percentage_alone_tells_of_counted_steps_how_many_there_are_to_be() -> None:
    beat = merged(COUNTED, read_post(document(10), COUNTED, NOW), 2, NOW)
    assert beat
    assert (beat.step, beat.total_steps, beat.counted) == (20, 200, True)


def test_the_last_post_tells_no_steps_and_takes_none_back() -> None:
    first = read_post(document(99, current_step=120, total_steps=121, loss=0.5), COUNTED, NOW)
    last = read_post(document(100, loss=0.25), COUNTED, NOW + 9).after(first)
    assert (last.step, last.ahead, last.total, last.loss, last.at) == (120, 100, 121, 0.25, NOW)


def test_what_a_program_reports_by_itself_goes_before_what_it_posts() -> None:
    own = Beat(rank=0, attempt=2, activity="saving", step=7, step_age=1.0, reports=True, total_steps=70, loss=0.125)
    assert merged(own, read_post(document(50, current_step=1, total_steps=2, loss=9), own, NOW), 2, NOW) == own
    assert merged(own, None, 2, NOW) is own
    assert merged(None, None, 2, NOW) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"trainerStatus": 7}',
        b'{"trainerStatus": {"metrics": 7}}',
        b'{"trainerStatus": {"metrics": {"loss": 1}}}',
        b'{"trainerStatus": {"metrics": [7]}}',
        b'{"trainerStatus": {"metrics": [{"name": "loss"}]}}',
        b'{"trainerStatus": {"metrics": [{"name": 7, "value": "1"}]}}',
        document(loss=1).replace(b"loss", b"l" * 65),
        b"[" * 60000,
    ],
    ids=lambda content: content[:50].decode(errors="replace"),
)
def test_what_is_no_such_document_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_post(content, None, NOW)


@pytest.mark.parametrize("value", ["-1", "1e300", "inf", "nan", "seven", "", "0x10"])
def test_a_count_that_cannot_be_one_is_left_out(value: str) -> None:
    post = read_post(document(current_step=value, total_steps=value, current_epoch=value), COUNTED, NOW)
    assert (post.step, post.total, post.epoch, post.ahead) == (None, None, None, 0)


@pytest.mark.parametrize(("done", "present"), [(0, 1), (0.5, 1), (1, 1), (1.01, 2), (3, 3)])
def test_the_present_epoch_of_so_many_that_are_done(done: float, present: int) -> None:
    assert read_post(document(current_epoch=done), None, NOW).epoch == present


def test_an_epoch_that_was_logged_counts_where_no_present_one_is_told() -> None:
    assert read_post(document(epoch=2.96), None, NOW).epoch == 3
    assert read_post(document(epoch=1, current_epoch=1.5), None, NOW).epoch == 2


def test_of_many_metrics_the_first_ones_are_kept() -> None:
    assert len(read_post(document(**{f"metric_{number}": 1 for number in range(999)}), None, NOW).metrics) == METRICS


def test_steps_that_go_back_do_not_become_less_than_none() -> None:
    beat = merged(Beat(rank=0, attempt=2, activity="training", step=1, counted=True), Post(NOW, 5, ahead=-9), 2, NOW)
    assert beat
    assert beat.step == 0
