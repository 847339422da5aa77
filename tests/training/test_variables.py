"""Variables that a script sets before it imports PyTorch count under the supervisor as they do under Python."""

import os
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from ddpjob_rank.machine.cores import threads_of_each
from ddpjob_rank.running.script.read_at_import import READ_AGAIN, reader_of
from ddpjob_supervisor.node.zygote_process import PRELOADED

from tests.support.waiting import patience

TORCH = """
import os, sys
read = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "TORCH_LOGS")}
forked = sys.modules["__main__"].__spec__ is not None  # A script has none.
threads = []
set_num_threads = threads.append
"""
"""Stands for PyTorch: it reads variables when it is imported."""

SHARE = str(threads_of_each(1))
"""The number of threads of a rank for which nobody has chosen one."""


def supervise(
    directory: Path, script: str, *words: str, torch: str = TORCH, **env: str
) -> subprocess.CompletedProcess[str]:
    for name in PRELOADED:
        package = directory / Path(*name.split("."))
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(torch if name == "torch" else "")
    (directory / "train.py").write_text(script + "import torch\nprint(torch.read, torch.forked, torch.threads)\n")
    clean = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "ddpjob_supervisor", *words, "train.py"],
        env={**clean, **env},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


@pytest.mark.parametrize(
    ("script", "read"),
    [
        ("import os\nos.environ['OMP_NUM_THREADS'] = '3'\n", {"OMP_NUM_THREADS": "3", "TORCH_LOGS": None}),
        (
            "import os\nos.environ.update({'TORCH_LOGS': 'dynamo', 'LD_LIBRARY_PATH': '/nosuch'})\n",
            {"OMP_NUM_THREADS": SHARE, "TORCH_LOGS": "dynamo"},
        ),
        (
            "import os\nos.environ.setdefault('OMP_NUM_THREADS', '3')\n",
            {"OMP_NUM_THREADS": SHARE, "TORCH_LOGS": None},
        ),
    ],
    ids=["set", "updated", "a default where there is a value"],
)
def test_pytorch_reads_at_its_import_what_the_script_has_set_and_ranks_stay_warm(
    tmp_path: Path, script: str, read: dict[str, str | None]
) -> None:
    done = supervise(tmp_path, script)
    assert (done.stdout, done.stderr) == (f"{read} True []\n", "")


def test_a_script_that_computes_a_variable_starts_cold_unless_it_must_not(tmp_path: Path) -> None:
    script = "import os\n\nos.environ['OMP_NUM_THREADS'] = str(1 + 2)\n"
    done = supervise(tmp_path, script)
    said, printed = done.stdout.splitlines()
    assert said.startswith("start method: cold, because train.py:3 computes OMP_NUM_THREADS, which PyTorch reads")
    assert printed == f"{ {'OMP_NUM_THREADS': '3', 'TORCH_LOGS': None} } False []"
    done = supervise(tmp_path, script, "--preload", "json")
    assert "which takes longer, and --preload json has no effect. To start ranks warm" in done.stdout
    done = supervise(tmp_path, script, "--start-method", "warm", OMP_NUM_THREADS="4,2")
    assert done.stdout == f"{ {'OMP_NUM_THREADS': '4,2', 'TORCH_LOGS': None} } True []\n"
    assert done.stderr.startswith("warning: train.py:3 sets OMP_NUM_THREADS too late: ")


@pytest.mark.parametrize(("method", "code"), [("warm", 2), ("cold", 1)])
def test_a_file_that_hides_a_module_of_the_standard_library_is_named(tmp_path: Path, method: str, code: int) -> None:
    (tmp_path / "queue.py").write_text("raise ImportError('it is not the standard library', name='queue')\n")
    torch = TORCH + "import queue\n"
    done = supervise(tmp_path, "import os\n", "--start-method", method, torch=torch)
    assert done.returncode == code
    error = f"error: {tmp_path / 'queue.py'} has the name of a module of Python's standard library, so one of the two"
    assert done.stderr.splitlines()[-1].startswith(error), done.stderr


SPY = """
import importlib, os, sys
Environ = type(os.environ)
read = Environ.__getitem__
def spied(self, name):
    frame = sys._getframe(1)
    while "site-packages" not in frame.f_code.co_filename and frame.f_back:
        frame = frame.f_back
    print("PYTHON", name, frame.f_code.co_filename, file=log)
    return read(self, name)
log = open(sys.argv[1], "a", buffering=1)
Environ.__getitem__ = spied
for module in sys.argv[2:]:
    importlib.import_module(module)
os._exit(0)
"""

NATIVE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char *spied(const char *function, const char *name, void *caller) {
    char line[4096];
    Dl_info library = {0};
    dladdr(caller, &library);
    int length = snprintf(line, sizeof line, "NATIVE %s %s\n", name, library.dli_fname ? library.dli_fname : "?");
    int log = open(LOG, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(log, line, length) < 0) abort();
    close(log);
    return ((char *(*)(const char *))dlsym(RTLD_NEXT, function))(name);
}
char *getenv(const char *name) { return spied("getenv", name, __builtin_return_address(0)); }
char *secure_getenv(const char *name) { return spied("secure_getenv", name, __builtin_return_address(0)); }
"""

NOBODY_SETS = (
    *("ACC_*", "GFORTRAN_*", "I_MPI_*", "MPI_*", "OMPI_*", "INTEL_*", "LLVM_*", "SAGE_ROOT", "CI"),
    *("LNAME", "LOGNAME", "USER", "USERNAME", "TEMP", "TMP", "TMPDIR"),  # For cache_dir(), which is asked again.
    *("PATH", "PYTHON*", "_PYTHON*", "LD_*"),
)
"""What is read at the import, but is set outside of the script, or is read again."""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="getenv() of libraries is observed through a library")
def test_the_list_has_what_the_installed_pytorch_reads_at_its_import(tmp_path: Path) -> None:
    log, library = tmp_path / "log", tmp_path / "spy.so"
    (tmp_path / "spy.c").write_text(NATIVE)
    define = f'-DLOG="{log}"'
    subprocess.run(["gcc", "-shared", "-fPIC", define, "-o", library, tmp_path / "spy.c", "-ldl"], check=True)
    subprocess.run(
        [sys.executable, "-P", "-c", SPY, log, *PRELOADED], env={**os.environ, "LD_PRELOAD": str(library)}, check=True
    )
    places = ("/torch/", "/numpy", "/triton/", "/sympy/", "/mpmath/")
    read = {line.split(" ", 2)[1] for line in log.read_text().splitlines() if any(place in line for place in places)}
    assert {"OMP_NUM_THREADS", "TORCH_LOGS", "TORCH_DISTRIBUTED_DEBUG", "TORCHINDUCTOR_FX_GRAPH_CACHE"} < read
    unlisted = {name for name in read - READ_AGAIN if reader_of(name) is None}
    assert {name for name in unlisted if not any(fnmatchcase(name, other) for other in NOBODY_SETS)} == set()
