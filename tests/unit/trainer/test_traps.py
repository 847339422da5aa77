"""Mistakes that PyTorch's errors do not explain: each is made here, and told with what to do about it."""

from collections.abc import Callable

import pytest
import torch
from ddpjob_rank.failure import traps
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FEW, MANY = TensorDataset(torch.zeros(10, 1)), TensorDataset(torch.zeros(20, 1))


class Short(Dataset[int]):
    """Says that it has more samples than it has."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return list(range(10))[index]


def call_a_list() -> None:
    nn.ModuleList([nn.Linear(1, 1)])(torch.zeros(1))


def mix_devices() -> None:
    nn.Linear(1, 1, device="meta")(torch.zeros(1, 1))  # A device of which every machine has one.


def load_wrapped_weights() -> None:
    nn.Linear(1, 1).load_state_dict({"module.weight": torch.zeros(1, 1), "module.bias": torch.zeros(1)})


def miss_a_class() -> None:
    nn.functional.cross_entropy(torch.zeros(1, 10), torch.tensor([10]))


def sample_another_data_set() -> None:
    list(DataLoader(Short(), sampler=DistributedSampler(Short(), num_replicas=1, rank=0)))


def import_a_package_for_python_2() -> None:
    basestring  # noqa: F821, B018  (that is the mistake)


def import_what_is_not_there() -> None:
    raise ModuleNotFoundError("No module named 'yaml'", name="yaml")


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (import_what_is_not_there, " -m pip install pyyaml"),
        (call_a_list, "let forward go through them"),
        (mix_devices, "so assign it (x = x.to(device))"),
        (load_wrapped_weights, "save model.module.state_dict()"),
        (miss_a_class, "each must be below the number of outputs of the last layer"),
        (sample_another_data_set, "create the sampler and the loader from the same data set"),
        (import_a_package_for_python_2, "the result of argparse's parse_args(), not a package"),
    ],
)
def test_a_known_mistake_is_told_in_one_line_with_its_place_and_what_to_do(
    mistake: Callable[[], None], advice: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (whatever torch raises)
        mistake()
    told = traps.known_mistake(caught.value)
    assert told, repr(caught.value)
    assert advice in str(told)
    assert f"{__file__}:" in str(told)
    assert "\n" not in str(told)


def test_a_module_that_an_image_lacks_is_told_with_how_to_have_it_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.delenv("DDPJOB_RUN_DIR", raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        import ddpjob_no_such  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    told = str(traps.known_mistake(caught.value))
    assert told.startswith("No module named 'ddpjob_no_such', in ")
    assert "ddpjob submit --pip ddpjob_no_such" in told


def test_a_part_that_a_package_has_not_is_none_of_them() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        import json.no_such  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    assert traps.known_mistake(caught.value) is None


def test_what_is_none_of_them_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert traps.known_mistake(caught.value) is None


def test_a_sampler_over_a_smaller_data_set_leaves_the_rest_out_without_a_word() -> None:
    loader = DataLoader(MANY, sampler=DistributedSampler(FEW, num_replicas=1, rank=0))
    assert len(list(loader)) == len(FEW)


def test_gradients_that_the_optimizer_does_not_have_grow_unless_the_model_clears_them() -> None:
    def grown(zero_grad: str) -> float:
        model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        nn.init.ones_(model[0].weight)
        nn.init.ones_(model[1].weight)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.0)
        for _ in range(3):
            (model if zero_grad == "model" else optimizer).zero_grad()
            model(torch.ones(1, 1)).sum().backward()
        return float(model[0].weight.grad)

    assert grown("model") == 1.0
    assert grown("optimizer") == 3.0


def test_with_all_parameters_in_the_optimizer_both_clear_the_same() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for clear in (model.zero_grad, optimizer.zero_grad):
        model(torch.ones(1, 1)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        clear()
        assert all(parameter.grad is None for parameter in model.parameters())
