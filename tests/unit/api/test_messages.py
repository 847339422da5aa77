"""How messages list names, and name options."""

import pytest
from ddpjob_operator.api.option_names import as_parameters, option
from ddpjob_operator.api.words import listed


@pytest.mark.parametrize(
    ("names", "most", "shown"),
    [([], 2, "none"), (["a"], 2, "a"), (["a", "b"], 2, "a, b"), (["a", "b", "c"], 2, "a, b and 1 more")],
)
def test_of_a_long_list_the_first_names_are_shown_and_the_others_counted(
    names: list[str], most: int, shown: str
) -> None:
    assert listed(names, most) == shown


@pytest.mark.parametrize(
    ("name", "value", "flag", "parameter"),
    [
        ("cpu", None, "--cpu", "cpu"),
        ("cpu", "lots", "--cpu lots", "cpu='lots'"),
        ("gpus-per-node", 0, "--gpus-per-node 0", "gpus_per_node=0"),
        ("volume", "data:/data", "--volume data:/data", "volumes=['data:/data']"),
        ("env", "A=1", "--env A=1", "env={'A': '1'}"),
        ("module", "a.b", "-m a.b", "module='a.b'"),
        ("program", None, "--", "args"),
    ],
)
def test_an_option_is_named_as_its_reader_writes_it(name: str, value: object, flag: str, parameter: str) -> None:
    assert option(name, value) == flag
    with as_parameters():
        assert option(name, value) == parameter
    assert option(name, value) == flag
