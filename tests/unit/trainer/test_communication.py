"""Options of what DistributedDataParallel sends, and when."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig, read_config
from ddpjob_trainer.model import compression
from ddpjob_trainer.model.compression import PowerSGD, compress
from ddpjob_trainer.model.parallel import parallel, prepare_model
from ddpjob_trainer.options import CommunicationConfig, Hook
from torch import nn

CPU = torch.device("cpu")


@pytest.mark.usefixtures("alone_in_a_group")
def test_what_is_left_out_is_each_ranks_own_or_the_mean_of_all() -> None:
    def restored(*saved: float, world: World) -> float:
        settings = CommunicationConfig(comm_hook="powersgd")
        power = PowerSGD(parallel(nn.Linear(1, 1), settings, CPU), settings)
        states = [power.capture() | {"errors": {0: torch.tensor([error])}} for error in saved]
        assert power.restore(states, world, CPU)
        return float(power.capture()["errors"][0])

    assert restored(1.0, 4.0, world=World(rank=1, world_size=2)) == 4.0
    assert restored(1.0, 4.0, world=World(rank=1, world_size=3)) == 2.5


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize(("total", "begins"), [(1000, 100), (29, 2), (30, 3), (1, 2)])
def test_compression_begins_after_a_tenth_of_the_steps_and_never_before_the_second(total: int, begins: int) -> None:
    settings = CommunicationConfig(comm_hook="powersgd")
    power = compress(parallel(nn.Linear(1, 1), settings, CPU), settings)
    assert power is not None
    power._state.iter = 7  # The warm-up has counted.
    power.begin(total)
    assert (power._state.start_powerSGD_iter, power._state.iter) == (begins, 0)


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize("changed", [{"bucket_cap_mb": 1.0}, {"powersgd_rank": 3}, {"find_unused_parameters": True}])
def test_what_was_left_out_does_not_fit_buckets_of_other_sizes(changed: dict[str, Any]) -> None:
    def made(**how: Any) -> PowerSGD:
        settings = CommunicationConfig(comm_hook="powersgd", **how)
        return PowerSGD(parallel(nn.Linear(1, 1), settings, CPU), settings)

    saved = made().capture() | {"errors": {0: torch.ones(1)}, "steps": 5}
    other = made(**changed)
    assert not other.restore([saved], World(), CPU)
    assert (other.capture()["errors"], other.capture()["steps"]) == ({}, 0)


@pytest.mark.usefixtures("alone_in_a_group")
def test_one_bucket_is_compressed_after_another_by_a_number_of_threads_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    future = SimpleNamespace(wait=partial(done.append, "waited"))
    monkeypatch.setattr(compression, "powerSGD_hook", lambda *_: future)
    assert compression._in_turn(None, None) is future  # type: ignore[arg-type]
    assert done == ["waited"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: done.append("counted"))
    kept = compression._Kept()
    kept[0] = torch.ones(1)
    assert done == ["waited", "counted"]
    assert list(kept) == [0]


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize(
    ("hook", "least"), [("none", 2**-23), ("fp16", 2**-10), ("bf16", 2**-7)], ids=["none", "fp16", "bf16"]
)
def test_gradients_are_sent_in_as_many_bits_as_asked(hook: Hook, least: float) -> None:
    settings = CommunicationConfig(comm_hook=hook)
    model = parallel(nn.Linear(2, 1, bias=False), settings, CPU)
    compress(model, settings)
    model(torch.tensor([[1 + least, 1 + least / 4]])).sum().backward()
    assert model.module.weight.grad.tolist() == [[1 + least, 1.0]]


@pytest.mark.usefixtures("alone_in_a_group")
def test_what_is_asked_of_distributed_data_parallel_reaches_it() -> None:
    def asked(*flags: str) -> list[object]:
        ddp = parallel(nn.Linear(1, 1), read_config(flags, {}).communication, CPU)
        return [ddp.bucket_bytes_cap, ddp.gradient_as_bucket_view, ddp.static_graph, ddp.find_unused_parameters]

    megabyte = 1024 * 1024
    assert asked() == [25 * megabyte, False, False, False]
    assert asked("--bucket-cap-mb", "3", "--gradient-as-bucket-view", "--static-graph") == [
        *(3 * megabyte, True, True, False)
    ]
    assert asked("--find-unused-parameters") == [25 * megabyte, False, False, True]


def test_synchronised_batch_normalisation_is_refused_on_a_cpu() -> None:
    config = TrainConfig(communication=CommunicationConfig(sync_bn=True))
    with pytest.raises(ConfigError, match="--sync-bn: torch has no synchronised batch normalisation for the CPU"):
        prepare_model(nn.BatchNorm1d(2), config, World(world_size=2), torch.device("cpu"))
    assert type(prepare_model(nn.BatchNorm1d(2), config, World(), torch.device("cpu"))) is nn.BatchNorm1d


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--static-graph", "--find-unused-parameters"], "not allowed with argument"),
        (["--powersgd-rank", "2"], "--powersgd-rank needs --comm-hook powersgd"),
        (["--comm-hook", "powersgd", "--precision", "fp16"], "use --precision bf16"),
        (["--bucket-cap-mb", "0"], "'0' is not a number above 0"),
        (["--model-ema-decay", "1"], "'1' is not a number from 0 to less than 1"),
        (["--momentum", "-1"], "'-1' is not a number of at least 0"),
    ],
)
def test_options_that_contradict_each_other_are_an_error(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(flags, {})
    assert message in str(error.value)
