"""Which lines of a program's output are its progress."""

import pytest
from ddpjob_operator.view_model import LoggedProgress, PrintedStep, parse, printed_loss, printed_step
from ddpjob_operator.view_model.logged_progress import PrintedLoss

PROGRESS = [
    "progress step=120/450 loss=0.12",
    "progress epoch=3/10 step=7 loss=nan samples_per_second=812 eta_seconds=12",
    "progress epoch=0.33",
    "  progress\tstep=7   rank=3",
]

PROSE = {
    "a step that is no number": "progress step=abc/xyz loss=nan",
    "an epoch that is no number beside a step": "progress epoch=first step=1",
    "a step that is not finite": "progress step=nan",
    "a step beyond all numbers": f"progress step={'9' * 400}",
    "a rank that is no number": "progress step=1 rank=inf",
    "neither step nor epoch": "progress loss=0.12",
    "a value without a name": "progress step=1 =5",
    "a word without a value": "progress step=1 so far",
    "no fields": "progress",
    "another word": "progress: step=1",
    "more than fields after many fields": f"progress step=1 {'a=b ' * 40}and so on",
}


@pytest.mark.parametrize("line", PROGRESS)
def test_a_line_that_tells_of_a_step_or_an_epoch_is_progress(line: str) -> None:
    assert parse(line) is not None


@pytest.mark.parametrize("line", PROSE.values(), ids=PROSE.keys())
def test_a_line_that_only_looks_like_progress_is_none(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize("line", ["saved step=nan", "resumed step=inf/3", "saved model=model.pt"])
def test_a_step_that_is_no_number_is_not_known(line: str) -> None:
    progress, report = LoggedProgress(), parse(line)
    assert report is not None
    progress.take(0, report)
    assert progress.step is None


def test_the_step_is_the_last_one_that_every_rank_has_finished() -> None:
    progress = LoggedProgress()
    steps = []
    for rank, line in [(0, "progress step=5"), (1, "progress step=3"), (1, "progress epoch=2"), (0, "saved step=6")]:
        report = parse(line)
        assert report is not None
        progress.take(rank, report)
        steps.append(progress.step)
    assert steps == [5, 3, 5, 6]


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("iter 100: loss 2.4561, time 12.34ms, mfu -100.00%", "2.4561"),
        ("step 250: train loss 1.9023, val loss 2.0", "1.9023"),
        ("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039", "2.300039"),
        ("Epoch: [0][ 1/40]\tTime 0.9 ( 0.9)\tLoss 6.9e+00 (7.0e+00)\tAcc@1 0.00", "6.9e+00"),
        ("{'loss': 0.5, 'grad_norm': 1.2, 'epoch': 1.0}", "0.5"),
        ("{'loss': '0.25', 'epoch': '1'}", "0.25"),
        ("epoch 3 iter 7: train loss 0.65. lr 5e-4", "0.65"),
        ("loss=tensor(0.125, grad_fn=<MseLossBackward0>)", "0.125"),
        ("  40%|####  | 4/10 [00:01<00:02, train_loss=.5, loss=nan]", "nan"),
        ("LOSS = -1", "-1"),
        ("the loss is 3", "3"),
        ("loss 2.3025851249694824", "2.3025851249694824"),
        ("{'loss': 0.05123456789012345}", "0.05123456789012345"),
        ("loss: 1.", "1"),
        ("loss 0.25,3", "0.25"),
        ("loss 1,234.5", None),
        ("loss 1.2K", None),
        (f"loss 0.{'1' * 40}", None),
        ("loss 1234567890123456", None),
        ("gloss 3", None),
        ("loss of 3 packets", None),
        ("lossless 3", None),
        ("packet loss: none", None),
        (f"{' ' * 2000}loss 3", None),
    ],
)
def test_a_loss_is_found_as_programs_print_it(line: str, loss: str | None) -> None:
    found = printed_loss(line)
    assert (found and found.value) == loss


def test_the_loss_is_that_of_the_lowest_rank_that_reports_one() -> None:
    progress = LoggedProgress()
    progress.hear(0, "loss 7")
    for line in ("progress rank=2 step=5 loss=3", "progress rank=0 step=5", "progress rank=1 step=5 loss=2"):
        progress.hear(0, line)
    assert progress.loss == "2"


def test_what_was_said_last_of_evaluation_saving_and_the_end_is_kept() -> None:
    progress = LoggedProgress()
    lines = ["evaluated step=1", "saved step=2", "resumed step=3", "finished step=4", "evaluated step=5"]
    for text in lines:
        progress.hear(0, text)
    kept = (progress.evaluated, progress.saved, progress.finished)
    assert [(said.event, said.number("step")) for said in kept if said] == [
        ("evaluated", 5),
        ("resumed", 3),
        ("finished", 4),
    ]


@pytest.mark.parametrize(("fields", "known"), [(0, False), (1, True), (32, True), (33, False)])
def test_a_report_has_so_many_fields(fields: int, *, known: bool) -> None:
    report = parse(" ".join(["evaluated", *(f"f{number}={number}" for number in range(fields))]))
    assert (report is not None) is known


@pytest.mark.parametrize(("length", "shown"), [(80, "x" * 80), (81, f"{'x' * 80}…")])
def test_of_the_line_with_a_loss_the_beginning_is_quoted(length: int, shown: str) -> None:
    assert str(PrintedLoss("0.5", f" {'x' * length}\n")) == f"0.5 (from its log: {shown})"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("iter 10: loss 4.54, time 123.45ms, mfu 1.20%", PrintedStep(10, None, "4.54", evaluated=False)),
        ("step 250: train loss 2.51, val loss 2.63", PrintedStep(250, None, "2.63", evaluated=True)),
        ("Epoch [1/5], Step [100/600], Loss: 0.1234", PrintedStep(100, 600, "0.1234", evaluated=False)),
        ("{'step': 7, 'loss': 1e-3}", PrintedStep(7, None, "1e-3", evaluated=False)),
        ("global_step=12 val_loss=nan", PrintedStep(12, None, "nan", evaluated=True)),
        ("Iteration #5 | Train Loss 2", PrintedStep(5, None, "2", evaluated=False)),
        ("iter   30/ 500 | lm loss: 6.1E+00 | grad norm: 1.2", PrintedStep(30, 500, "6.1E+00", evaluated=False)),
        ("loss 4.54", None),
        ("step 10 of the ladder", None),
        ("footstep 10: loss 4.54", None),
        ("step 1.5: loss 4.54", None),
        ("step 10: loss 1,234.5", None),
        ("step 10: lossless 3", None),
        (f"{'x' * 1000} step 10: loss 4.54", None),
        ("step " + "9" * 30 + ": loss 1", None),
    ],
)
def test_a_line_with_a_step_and_a_loss_tells_both(line: str, said: PrintedStep | None) -> None:
    assert printed_step(line) == said
