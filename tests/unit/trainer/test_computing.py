"""Options of how a step is computed."""

from typing import Any

import pytest
import torch
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.model import amp
from ddpjob_trainer.model.parallel import UNUSED, prepare_model, unused_parameters
from ddpjob_trainer.options import ComputingConfig
from torch import Tensor, nn

CPU = torch.device("cpu")


class Layout(nn.Module):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.seen: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        self.seen = images
        return self.convolution(images)


@pytest.mark.parametrize("asked", [False, True])
def test_weights_and_images_are_laid_out_with_their_channels_last_if_asked_to(*, asked: bool) -> None:
    config = TrainConfig(computing=ComputingConfig(channels_last=asked))
    model = prepare_model(Layout(), config, World(), CPU)
    model(torch.zeros(2, 3, 8, 8))
    for tensor in (model.seen, model.convolution.weight):
        assert tensor.is_contiguous(memory_format=torch.channels_last) == asked


def test_other_arguments_than_images_keep_their_layout() -> None:
    model = prepare_model(Layout(), TrainConfig(computing=ComputingConfig(channels_last=True)), World(), CPU)
    (hook,) = model._forward_pre_hooks.values()
    rows, words = torch.zeros(2, 3), "as it is"
    assert hook(model, (rows, words)) == (rows, words)


@pytest.mark.parametrize(
    ("asked", "compiler", "compiled", "said"),
    [
        (True, "sh", True, "--compile: the model is compiled for cpu when it is first called, which takes a while\n"),
        (
            True,
            "none-such",
            False,
            "--compile: there is no compiler none-such (set CXX to use another): ",
        ),
        (True, None, None, "g++"),
        (False, "sh", False, ""),
    ],
)
def test_a_model_is_compiled_if_asked_to_and_if_there_is_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiler: str | None,
    compiled: bool | None,  # noqa: FBT001  (a column of the table)
    said: str,
    *,
    asked: bool,
) -> None:
    calls: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: calls.append(model))  # noqa: PLW0108  (it is bound)
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    else:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
    model = prepare_model(Layout(), TrainConfig(computing=ComputingConfig(compile=asked)), World(), CPU)
    told = capsys.readouterr().out
    assert calls == ([model] if compiled else [])
    assert said in told if said else not told


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (f"{UNUSED} ... Parameters which did not receive grad for rank 1: 0 2", "first.weight, last.bias"),
        (UNUSED, None),
        ("Parameters which did not receive grad for rank 1: 0 2", None),
    ],
)
def test_parameters_without_a_gradient_are_named_and_frozen_ones_are_not_counted(
    message: str, named: str | None
) -> None:
    model = nn.Sequential()
    model.add_module("frozen", nn.Linear(1, 1).requires_grad_(False))
    model.add_module("first", nn.Linear(1, 1, bias=False))
    model.add_module("last", nn.Linear(1, 1))
    found = unused_parameters(RuntimeError(message), model)
    assert (None if found is None else str(found).partition(". ")[0]) == (
        named and f"the loss does not depend on these parameters of the model: {named}"
    )


@pytest.mark.parametrize(("said", "kind"), [(UNUSED, ConfigError), ("mat1 and mat2", RuntimeError)])
def test_only_the_error_of_unused_parameters_is_put_into_other_words(said: str, kind: type[Exception]) -> None:
    from ddpjob_trainer.model.learner import Learner  # noqa: PLC0415

    def fail(_: object) -> None:
        raise RuntimeError(f"{said} did not receive grad for rank 0: 0")

    learner: Any = Learner(nn.Linear(1, 1), fail, None, None)  # type: ignore[arg-type]
    with pytest.raises(kind) as raised:
        learner.output(torch.ones(1))
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("precision", "device", "supported", "dtype"),
    [
        ("fp32", "cpu", False, None),
        ("bf16", "cpu", False, torch.bfloat16),
        ("bf16", "cuda", True, torch.bfloat16),
        ("bf16", "cuda", False, "--precision bf16: NVIDIA V does not support bf16; use --precision fp16"),
        ("fp16", "cuda", False, torch.float16),
    ],
)
def test_a_precision_is_that_of_the_options_or_refused_where_it_would_only_be_emulated(
    monkeypatch: pytest.MonkeyPatch, precision: Any, device: str, dtype: Any, *, supported: bool
) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda *, including_emulation=True: including_emulation or supported
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA V")
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype: (kind, dtype))
    if isinstance(dtype, str):
        with pytest.raises(ConfigError, match=f"^{dtype}$"):
            amp.autocast(precision, torch.device(device))
        return
    made: Any = amp.autocast(precision, torch.device(device))()
    assert made == (device, dtype) if dtype else not isinstance(made, tuple)
