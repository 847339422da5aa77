"""A forked rank says that a variable comes too late for PyTorch, whichever way the script sets it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
from ddpjob_rank.running.program import program_of
from ddpjob_rank.running.script.late_variables import watch
sys.path.insert(0, "")
program = program_of(sys.argv[1:])
watch(program, {"MKL_NUM_THREADS": "2"})
program.run()
"""

FILES = {
    "torch/__init__.py": "import os\nos.environ['TORCHDYNAMO_VERBOSE'] = '1'\n",
    "uses.py": "import torch\n",
    "dotenv.py": "import os\ndef load(name='OMP_NUM_THREADS'):\n    os.environ.update({name: '3'})\n",
}

TOO_LATE = {
    "by a function of a module": "import dotenv\ndotenv.load()\nimport torch\n",
    "by a loop": "import os\nfor name in ['OMP_NUM_THREADS']: os.environ[name] = '3'\nimport torch\n",
    "by putenv": "import os\ndef put(name): os.putenv(name, '3')\nput('OMP_NUM_THREADS')\nimport torch\n",
    "in main()": "import dotenv\ndef main():\n    dotenv.load()\n    import torch\nmain()\n",
    "without an import of PyTorch": "import dotenv\ndotenv.load()\n",
    "for Dynamo": "import dotenv, torch\ndotenv.load('TORCHDYNAMO_VERBOSE')\n",
}

IN_TIME = {
    "after the import": "import dotenv, torch\ndotenv.load()\n",
    "after os.chdir": "import dotenv, os, torch\nos.chdir('/')\ndotenv.load()\n",
    "after an import by a module": "import dotenv, uses\ndotenv.load()\n",
    "in main()": "import dotenv\ndef main():\n    import torch\n    dotenv.load()\nmain()\n",
    "the value that PyTorch has seen": "import os\nos.environ['MKL_NUM_THREADS'] = '2'\nimport torch\n",
    "after an import that the text does not show": "import dotenv\nexec('import torch')\ndotenv.load()\n",
    "after a relative import that fails": (
        "import dotenv\ntry:\n  from .x import y\nexcept ImportError: 0\nimport torch\ndotenv.load()\n"
    ),
    "read later": "import dotenv\ndotenv.load('CUDA_VISIBLE_DEVICES')\nimport torch\n",
    "by PyTorch itself": "import torch\n",
    "in a child": "import dotenv, os\nif not os.fork():\n    dotenv.load()\n    os._exit(0)\nos.wait()\n",
}


def said_by(directory: Path, script: str, rank: str = "0") -> str:
    for name, text in {**FILES, "train.py": script}.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    call = [sys.executable, "-P", "-c", RANK, "train.py"]
    env = {**os.environ, "RANK": rank}
    done = subprocess.run(call, cwd=directory, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("script", TOO_LATE.values(), ids=TOO_LATE)
def test_a_variable_that_comes_too_late_is_told_once_with_its_line_and_advice(tmp_path: Path, script: str) -> None:
    said = said_by(tmp_path, script + "import os\nos.environ['OMP_DYNAMIC'] = 'true'\n")
    (line,) = said.splitlines()
    assert line.startswith("warning: "), said
    assert " too late: PyTorch reads it when imported" in line
    assert line.endswith("with --env, or use --start-method cold")


def test_one_rank_says_it_for_all(tmp_path: Path) -> None:
    assert said_by(tmp_path, TOO_LATE["by a loop"], rank="1") == ""


@pytest.mark.parametrize("script", IN_TIME.values(), ids=IN_TIME)
def test_nothing_is_said_of_a_variable_that_plain_python_would_not_heed_either(tmp_path: Path, script: str) -> None:
    assert said_by(tmp_path, script) == ""
