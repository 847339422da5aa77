"""What a run says of how exact its GPU computes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ddpjob_trainer.model import exactness
from ddpjob_trainer.options import ComputingConfig

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """PyTorch's own, as they were."""
    cudnn = torch.backends.cudnn
    before = (cudnn.benchmark, cudnn.deterministic)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda mode: said.update(mode=mode))
    monkeypatch.delenv(exactness.WORKSPACE, raising=False)
    said: dict[str, Any] = {}
    yield said
    cudnn.benchmark, cudnn.deterministic = before


def test_only_who_asks_for_it_gets_what_is_deterministic(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn, env = torch.backends.cudnn, exactness.os.environ
    cudnn.benchmark, cudnn.deterministic = True, False
    exactness.prepare(ComputingConfig())
    assert (settings, cudnn.benchmark, cudnn.deterministic, exactness.WORKSPACE in env) == ({}, True, False, False)
    exactness.prepare(ComputingConfig(deterministic=True))
    assert (settings, cudnn.benchmark, cudnn.deterministic) == ({"mode": True}, False, True)
    assert env[exactness.WORKSPACE] == exactness.FIXED
    monkeypatch.setenv(exactness.WORKSPACE, ":16:8")
    exactness.prepare(ComputingConfig(deterministic=True))
    assert env[exactness.WORKSPACE] == ":16:8", "the user's own stays"
    monkeypatch.delenv(exactness.WORKSPACE)


@pytest.mark.parametrize(
    ("rounded", "benchmark", "exact", "said"),
    [
        (set(), False, True, "no TF32, cudnn.benchmark off, deterministic"),
        ({"conv"}, False, False, "TF32 in convolutions, cudnn.benchmark off, not deterministic"),
        (
            {"conv", "matmul"},
            True,
            False,
            "TF32 in products and convolutions, cuDNN tries which algorithms are fastest, not deterministic",
        ),
    ],
)
def test_the_settings_are_told_in_words(
    monkeypatch: pytest.MonkeyPatch, rounded: set[str], said: str, *, benchmark: bool, exact: bool
) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: exact)
    torch.backends.cudnn.benchmark = benchmark
    kinds = {"conv": torch.backends.cudnn.conv, "matmul": torch.backends.cuda.matmul}
    monkeypatch.setattr(exactness, "_rounds", lambda settings: any(settings is kinds[kind] for kind in rounded))
    assert exactness.description() == said


class Newer:
    fp32_precision = "tf32"
    allow_tf32 = False


class Older:
    allow_tf32 = True


def test_tf32_is_known_by_the_name_that_this_pytorch_has_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exactness._rounds(Newer())
    assert exactness._rounds(Older())
    monkeypatch.setattr(Newer, "fp32_precision", "ieee")
    monkeypatch.setattr(Older, "allow_tf32", False)
    assert not exactness._rounds(Newer())
    assert not exactness._rounds(Older())


def test_rank_0_alone_says_so_and_on_a_gpu_alone(capsys: pytest.CaptureFixture[str]) -> None:
    exactness.log_settings(torch.device("cpu"), leads=True)
    exactness.log_settings(GPU, leads=False)
    assert capsys.readouterr().out == ""
    exactness.log_settings(GPU, leads=True)
    assert capsys.readouterr().out == f"exactness: {exactness.description()}\n"
