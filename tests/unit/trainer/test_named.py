"""The objects whose state a checkpoint holds: what is refused, and what a checkpoint fits."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob.checkpoint.encoding import decode, encode
from ddpjob.training.named import Named
from ddpjob_rank.errors import ConfigError, DivergedError
from torch import nn
from torch.nn.parallel import DataParallel
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel


def through_a_file(objects: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The states of objects, as another process reads them."""
    with (directory / "state.pt").open("wb") as file:
        encode({"shared": Named(objects).state()}, file)
    states: dict[str, Any] = decode(directory / "state.pt")["shared"]
    return states


def a_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Linear(3, 1)))


def a_trained(network: nn.Module) -> dict[str, Any]:
    """Objects after a step."""
    optimizer = Adam(network.parameters())
    objects = {
        "model": network,
        "optimizer": optimizer,
        "scheduler": StepLR(optimizer, 1),
        "scaler": torch.amp.GradScaler("cpu", init_scale=4.0),
        "ema": AveragedModel(network),
    }
    network(torch.rand(4, 2)).sum().backward()
    optimizer.step()
    objects["ema"].update_parameters(network)
    objects["scheduler"].step()
    return objects


def states_of(objects: dict[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value.state_dict()) for name, value in objects.items()}


def test_models_optimizers_schedulers_scalers_and_averages_come_back(tmp_path: Path) -> None:
    saved, fresh = a_trained(a_network()), a_trained(a_network())
    assert Named(fresh).load(through_a_file(saved, tmp_path)) == []
    torch.testing.assert_close(states_of(fresh), states_of(saved), rtol=0, atol=0)


def test_several_objects_have_names_with_points_and_none_is_no_object(tmp_path: Path) -> None:
    objects = {"model": {"g": nn.Linear(1, 1), "d": nn.Linear(2, 1)}, "optimizer": None}
    states = through_a_file(objects, tmp_path)
    assert states.keys() == {"model.g", "model.d"}
    fresh = {"model": {"g": nn.Linear(1, 1), "d": nn.Linear(2, 1)}}
    Named(fresh).load(states)
    assert torch.equal(fresh["model"]["d"].weight, objects["model"]["d"].weight)  # type: ignore[index, union-attr]


def compiled(model: nn.Module) -> nn.Module:
    wrapped: nn.Module = torch.compile(model, backend="eager")  # type: ignore[assignment]
    return wrapped


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": compiled,
    "parallel": DataParallel,
    "compiled parallel": lambda model: compiled(DataParallel(model)),
    "parallel compiled": lambda model: DataParallel(compiled(model)),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_prefixes_of_wrappers_do_not_reach_the_file_and_a_checkpoint_fits_with_and_without(
    wrap: Callable[[nn.Module], nn.Module], tmp_path: Path
) -> None:
    wrapped, bare = {"model": wrap(a_network())}, {"model": a_network()}
    states = through_a_file(wrapped, tmp_path)
    assert list(states["model"]) == list(bare["model"].state_dict())
    Named(bare).load(states)
    assert torch.equal(next(bare["model"].parameters()), next(wrapped["model"].parameters()))
    fresh = {"model": wrap(a_network())}
    Named(fresh).load(through_a_file(bare, tmp_path))
    torch.testing.assert_close(states_of(fresh), states_of(wrapped), rtol=0, atol=0)


def test_parts_of_a_model_may_be_compiled_too(tmp_path: Path) -> None:
    network = a_network()
    network[2] = compiled(network[2])
    average = AveragedModel(network)
    states = through_a_file({"model": network, "ema": average}, tmp_path)
    assert list(states["model"]) == list(a_network().state_dict())
    assert "module.2.0.weight" in states["ema"]


class Versioned(nn.Linear):
    """A module that looks at the version of its saved state, as some of PyTorch's do."""

    _version = 2
    versions: list[Any]

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *more: Any) -> None:
        self.versions = [metadata.get("version")]
        super()._load_from_state_dict(state, prefix, metadata, *more)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("wrap", [lambda model: model, *WRAPPERS.values()])
def test_modules_are_told_the_version_of_their_state(wrap: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    states = through_a_file({"model": wrap(Versioned(1, 1))}, tmp_path)
    fresh = Versioned(1, 1)
    Named({"model": wrap(fresh)}).load(states)
    assert fresh.versions == [2]


@pytest.mark.parametrize(("saved", "present"), [(SGD, AdamW), (AdamW, SGD)])
def test_the_state_of_another_optimizer_is_refused(saved: Any, present: Any) -> None:
    model = nn.Linear(1, 1)
    state = {"optimizer": saved(model.parameters(), lr=0.1).state_dict()}
    with pytest.raises(ConfigError, match="does not fit this optimizer: it is that of another optimizer, which has"):
        Named({"optimizer": present(model.parameters(), lr=0.1)}).load(state)


def test_an_optimizer_that_lacks_or_has_more_settings_is_the_same_one() -> None:
    model = nn.Linear(1, 1)
    state = AdamW(model.parameters()).state_dict()
    del state["param_groups"][0]["foreach"]
    scheduled = AdamW(model.parameters())
    StepLR(scheduled, 1)
    for optimizer in (AdamW(model.parameters()), scheduled):
        assert Named({"optimizer": optimizer}).load({"optimizer": state}) == []


def test_a_model_that_does_not_fit_is_refused_with_the_first_three_differences_and_their_number(
    tmp_path: Path,
) -> None:
    states = through_a_file({"model": nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))}, tmp_path)
    other = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1), nn.Linear(1, 1))
    before = states_of({"model": other})
    with pytest.raises(ConfigError) as refused:
        Named({"model": other}).load(states)
    assert str(refused.value) == (
        "model is not the model of the checkpoint: 2.weight is missing in the checkpoint; 2.bias is missing in the"
        " checkpoint; 0.weight has the shape (3, 2) in the checkpoint, and (4, 2) here; and 2 further differences."
        " Train the same model, or name another directory"
    )
    torch.testing.assert_close(states_of({"model": other}), before, rtol=0, atol=0)


def test_an_optimizer_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    states = through_a_file({"optimizer": SGD(nn.Linear(1, 1).parameters(), 0.1)}, tmp_path)
    with pytest.raises(ConfigError, match="the state of optimizer in the checkpoint does not fit this optimizer: "):
        Named({"optimizer": SGD(a_network().parameters(), 0.1)}).load(states)


def test_objects_that_only_one_of_both_has_are_told(tmp_path: Path) -> None:
    states = through_a_file({"model": nn.Linear(1, 1), "critic": nn.Linear(1, 1)}, tmp_path)
    assert Named({"model": nn.Linear(1, 1), "ema": nn.Linear(1, 1)}).load(states) == [
        (
            "the checkpoint has no state of ema, not restored, but of critic, not used: if an object has been"
            " renamed, stop, and pass it by its name in the checkpoint"
        )
    ]
    whole = {"model": nn.Linear(1, 1), "critic": nn.Linear(1, 1)}
    assert Named(whole | {"ema": nn.Linear(1, 1)}).load(states) == [
        "the checkpoint has no state of ema: ema is not restored"
    ]
    assert Named({"model": nn.Linear(1, 1)}).load(states) == [
        "the checkpoint also has a state of critic, which is not used"
    ]


@pytest.mark.parametrize(
    ("saved", "present", "meant"),
    [
        ("model", "modle", "model"),
        ("optimizer", "optimiser", "optimizer"),
        ("model.generator", "model.genrator", "model.generator"),
        ("scaler", "scheduler", None),
        ("model", "ema", None),
        ("model.d", "model.e", None),
        ("model.gen", "model.g", None),
    ],
)
def test_an_object_with_a_misspelled_name_is_refused_with_the_name_of_the_checkpoint(
    saved: str, present: str, meant: str | None
) -> None:
    states = {name: nn.Linear(1, 1).state_dict() for name in (saved, "critic")}
    named = Named({present: nn.Linear(1, 1), "critic": nn.Linear(1, 1)})
    if meant is None:
        (remark,) = named.load(states)
        assert f"no state of {present}, not restored, but of {saved}, not used: if an object" in remark
        return
    with pytest.raises(ConfigError, match=f"did you mean {meant}.* Pass the object as {meant}, even if"):
        named.load(states)
    both = Named({present: nn.Linear(1, 1), saved: nn.Linear(1, 1)})
    assert len(both.load(states)) == 1, "a new object beside the saved one"


def test_an_object_without_a_state_is_refused_by_name_and_type() -> None:
    refusal = "model.d is a list, which has no state_dict() and load_state_dict(), so its state cannot be saved and"
    with pytest.raises(ConfigError, match=re.escape(refusal)):
        Named({"model": {"g": nn.Linear(1, 1), "d": [1]}})


def test_a_state_that_could_not_be_read_back_is_refused_by_name_place_and_type() -> None:
    optimizer = AdamW([torch.zeros(1)])
    optimizer.param_groups[0]["mode"] = Path.home
    with pytest.raises(
        ConfigError, match=re.escape("the state of optimizer cannot be saved: ['param_groups'][0]['mode']")
    ):
        Named({"optimizer": optimizer})


def test_parameters_that_were_finite_at_the_beginning_are_checked() -> None:
    model = nn.Linear(1, 1)
    named = Named({"model": compiled(model)})
    named.check_finite(named.state())
    model.bias.data.fill_(float("inf"))
    with pytest.raises(DivergedError, match="these parameters of model are not finite numbers: bias"):
        named.check_finite(named.state())
    Named({"model": model}).check_finite({"model": model.state_dict()})


def test_a_model_that_a_checkpoint_does_not_have_has_nothing_to_check() -> None:
    model = nn.Linear(1, 1)
    Named({"model": model, "ema": nn.Linear(1, 1)}).check_finite({"model": model.state_dict()})


def test_a_model_without_values_is_refused_with_the_cure() -> None:
    with pytest.raises(
        ConfigError, match="model has parameters without a shape, such as weight: call it with a batch"
    ):
        Named({"model": nn.LazyLinear(3)})
    with pytest.raises(ConfigError, match=r"model has parameters without values, such as weight, .* call to_empty"):
        Named({"model": nn.Linear(1, 1, device="meta")})


class Counts(dict[str, int]):
    """A dict that knows what of it to save."""

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self["seen"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.update(state)


def test_a_dict_with_a_state_of_its_own_is_one_object_and_not_several(tmp_path: Path) -> None:
    saved, restored = Counts(seen=7), Counts(seen=0)
    states = through_a_file({"counts": saved, "more": {"counts": Counts(seen=8)}}, tmp_path)
    assert states == {"counts": {"seen": 7}, "more.counts": {"seen": 8}}
    Named({"counts": restored}).load(states)
    assert restored == {"seen": 7}
