"""`ddpjob export`: the weights of the newest checkpoint as a file that other programs read."""

import sys
from pathlib import Path

import pytest
import torch
from ddpjob.checkpoint import weights
from ddpjob.training.training import Training
from ddpjob_rank.errors import ConfigError
from safetensors.torch import load_file
from torch import nn


class Counts:
    """What has a state, but no weights."""

    def state_dict(self) -> dict[str, int]:
        return {"seen": 7}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise NotImplementedError


@pytest.fixture
def saved(tmp_path: Path, no_training: None) -> Path:  # noqa: ARG001
    """Two models that share a weight, after three steps."""
    models = {"one": nn.Linear(2, 2), "other": nn.Linear(2, 2)}
    models["other"].weight = models["one"].weight
    for value, parameter in enumerate(parameter for model in models.values() for parameter in model.parameters()):
        nn.init.constant_(parameter, value)
    training = Training(model=models, counts=Counts(), directory=tmp_path / "saved")
    for _ in training.epochs(1):
        for _ in range(3):
            training.step()
    return tmp_path / "saved"


@pytest.mark.parametrize(
    ("thing", "values"),
    [("model.one", {"weight": 2.0, "bias": 1.0}), ("model.other", {"weight": 2.0, "bias": 3.0})],
)
def test_the_weights_of_a_thing_are_exported(
    saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], thing: str, values: dict[str, float]
) -> None:
    output = tmp_path / "model.safetensors"
    output.write_text("a former one")
    weights.export(str(saved), output, thing)
    tensors = load_file(output)
    assert {name: float(tensor.flatten()[0]) for name, tensor in tensors.items()} == values
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"weight": (2, 2), "bias": (2,)}
    (plain := tmp_path / "plain").touch()
    assert output.stat().st_mode == plain.stat().st_mode, "others may read it as they may other files"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "plain", "saved"]
    told = capfd.readouterr().out
    assert "exported" in told
    assert "step=3" in told
    assert "tensors=2" in told


@pytest.mark.parametrize(
    ("thing", "said"),
    [("ema", r"has no ema: it has (model|counts)"), ("counts", r"counts in .* has no tensors")],
)
def test_a_thing_that_has_no_weights_is_told(saved: Path, tmp_path: Path, thing: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        weights.export(str(saved), tmp_path / "out", thing)


def test_the_command_exports_the_model_and_tells_a_mistake_in_one_line(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["export", str(saved), "-o", str(output), "--thing", "model.one"])
    weights.main()
    assert torch.equal(load_file(output)["bias"], torch.ones(2))
    for words, said in {
        ("-o", f"{tmp_path}/no/out", "--thing", "model.one"): "/no/out cannot be written: No such file or directory",
        ("--output", f"{output}"): "has no model: it has model.one, model.other, counts",
    }.items():
        monkeypatch.setattr(sys, "argv", ["export", str(saved), *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            weights.main()
        assert left.value.code == 2
        told = capfd.readouterr().err
        assert told.startswith("error: ")
        assert told.endswith(f"{said}\n")
        assert told.count("\n") == 1
