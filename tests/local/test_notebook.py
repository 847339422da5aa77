"""A notebook, in a kernel of Jupyter: its functions run in ranks, and their results and errors come back into it."""

import json
from typing import Any

from tests.local.here import Here
from tests.support.waiting import patience

EXECUTE = "from nbclient.cli import main; main()"
CELLS = [
    "import math\nimport ddpjob",
    """
from dataclasses import dataclass

@dataclass
class Config:
    lr: float

def doubled(config):
    return config.lr * FACTOR
""",
    "FACTOR = 2\nmodel = object()",
    """def train(lr, fails=False):
    from mymodel import fit
    if fails:
        raise ValueError(FACTOR)
    return [doubled(Config(lr)), math.floor(fit(lr))]
""",
    "print('result', ddpjob.run(train, {'lr': 2.5}, procs_per_node=2, start_method='cold', name='works'))",
    "ddpjob.run(train, {'lr': 1, 'fails': True}, start_method='cold', name='fails', max_restarts=0, quiet=True)",
    "def uses():\n    return model\nddpjob.run(uses)",
]


def test_a_notebook_runs_its_functions_and_gets_their_results_and_errors(here: Here) -> None:
    (here.directory / "mymodel.py").write_text("def fit(lr):\n    return lr * 10 + 0.5\n", encoding="utf-8")
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for n, source in enumerate(CELLS)
    ]
    notebook = here.directory / "notebook.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    done = here.start_in_python("-c", EXECUTE, str(notebook), "--inplace", "--allow-errors")
    output, _ = done.communicate(timeout=patience(150))
    assert done.returncode == 0, output + here.evidence()
    *_, works, fails, uses = [
        "".join(map(_text, cell["outputs"])) for cell in json.loads(notebook.read_text())["cells"]
    ]
    assert "result [5.0, 25]\n" in works, works + here.evidence()
    assert "\x1b[" not in works, "a notebook cannot overwrite what it shows"
    assert "works: Succeeded. 1 node finished" in works
    assert "RankFailed" in fails
    assert "ValueError: 2" in fails
    assert "Cell In[4], line 4, in train\n    raise ValueError(FACTOR)" in fails, "of the rank"
    assert "In[6]" in fails, "of the notebook"
    assert "running.py" not in fails, "nothing of DDPJob is of interest"
    assert fails.count("ValueError: 2\n") == 1
    assert "uses uses model of the notebook, but model is of type object" in uses


def _text(output: dict[str, Any]) -> str:
    return "".join(output.get("text", [])) + "\n".join(output.get("traceback", []))
