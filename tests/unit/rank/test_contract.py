"""The trainer's side of the contract; the operator's is held to the same file."""

import ast
import json
import re
from pathlib import Path

from ddpjob_rank import environment, exit_codes
from ddpjob_rank.failure import failure_report as failure

CONTRACT = json.loads((Path(__file__).parents[1] / "golden" / "contract.json").read_text())
TRAINER = Path(environment.__file__).parents[1]
SOURCES = [path for package in TRAINER.glob("ddpjob_[eprst]*") for path in package.rglob("*.py")]
TORCHRUNS_OWN = {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"}
TORCHS_OWN = {"OMP_NUM_THREADS", "CXX"}
SLURMS_OWN = {"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"}
KUBERNETES_OWN = {"KUBERNETES_SERVICE_HOST"}
PYTHONS_OWN = {"PYTHONBREAKPOINT", "PYTHONPATH"}


def test_every_variable_that_the_trainer_reads_is_of_the_contract() -> None:
    names = {name: value for name, value in vars(environment.Env).items() if name.isupper()}
    assert names.items() <= CONTRACT["env"].items()


ALONE = {"DDPJOB_TERMINATION_LOG"}
"""Read by a program that a pod runs before it has our packages, and that can import none of their names."""


def test_no_variable_is_read_by_another_name() -> None:
    read = r'environ(?:\.get\(|\[)"(\w+)"|"(\w+)" (?:not )?in os\.environ|env(?:\.get\(|\[)"(\w+)"'
    sources = "\n".join(path.read_text() for path in SOURCES)
    found = {name for groups in re.findall(read, sources) for name in groups if name}
    assert found == TORCHRUNS_OWN | TORCHS_OWN | SLURMS_OWN | KUBERNETES_OWN | PYTHONS_OWN | {"TMPDIR"} | ALONE
    assert set(CONTRACT["env"].values()) >= ALONE


def test_exit_codes_are_the_contracts() -> None:
    assert {code.name: code.value for code in exit_codes.ExitCode} == CONTRACT["exitCodes"]


def test_the_failure_report_goes_where_the_contract_says() -> None:
    assert CONTRACT["terminationLog"] == failure.DEFAULT_PATH


def test_no_process_unpickles_what_another_one_sends() -> None:
    """Whoever gets among the ranks or the supervisors could run code in them."""
    sources = {path.name: path.read_text() for path in SOURCES}
    for unpickles in ("_object(", "_object_list(", "pickle.load", "import multiprocessing"):
        assert [name for name, text in sources.items() if unpickles in text] == []
    for name, text in sources.items():
        chosen = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword))
        assert {ast.unparse(node.value) for node in chosen if node.arg == "weights_only"} <= {"True"}, name
