"""Checkpoints on a file system that refuses to read them, for a while or for this user, and beside a writer."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.reading import FILES, find_newest
from ddpjob_rank.manifests.manifest import Manifest, checkpoints_in

# A disk in trouble: reads of some files fail with this errno for as long as another file is there.
TROUBLE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(int fd) {
    char link[64], path[4096];
    if (!getenv("TROUBLE_AT") || syscall(SYS_access, getenv("TROUBLE_WHILE"), 0)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (!strstr(path, getenv("TROUBLE_AT"))) return 0;
    errno = atoi(getenv("TROUBLE_ERRNO"));
    return 1;
}
ssize_t read(int fd, void *to, size_t n) { return fails(fd) ? -1 : syscall(SYS_read, fd, to, n); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { return fails(fd) ? -1 : syscall(SYS_pread64, fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { return pread(fd, to, n, at); }
"""
RESUME = """
import sys
from pathlib import Path
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
try:
    found = CheckpointDirectory(Path(sys.argv[1]), keep=3).newest(Path.read_bytes, retry_seconds=float(sys.argv[2]))
    print(found and found.manifest.step)
except Exception as error:
    print(error.cause, error)
"""
WRITER = """
import sys
from pathlib import Path
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob_rank.manifests.manifest import Manifest
checkpoints = CheckpointDirectory(Path(sys.argv[1]), keep=1)
for step in range(1, 1_000_000):
    checkpoints.write(Manifest(step, 1, step, 1, 8, "uid", (0,)), lambda file: file.write(b"state"))
    print(step, flush=True)
"""


def save(directory: Path, *steps: int) -> None:
    for step in steps:
        CheckpointDirectory(directory, 3).write(
            Manifest(step, 1, step, 1, 8, "uid", (0,)), lambda file: file.write(b"state")
        )


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("trouble") / "trouble.so"
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is Linux's")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=TROUBLE.encode(), check=True)
    return library


@pytest.mark.parametrize("file", ["manifest.json", "state.pt"])
@pytest.mark.parametrize(("number", "words"), [(5, "Input/output error"), (116, "Stale file handle")])
def test_on_a_disk_in_trouble_nothing_is_started_over_and_when_it_is_back_training_goes_on(
    tmp_path: Path, trouble: Path, file: str, number: int, words: str
) -> None:
    saved, lasts = tmp_path / "saved", tmp_path / "lasts"
    save(saved, 60, 120)
    lasts.touch()
    env = {"LD_PRELOAD": str(trouble), "TROUBLE_AT": f"step-00000120/{file}", "TROUBLE_WHILE": str(lasts)}
    env = {**os.environ, **env, "TROUBLE_ERRNO": str(number)}
    resume = [sys.executable, "-c", RESUME, str(saved)]
    said = subprocess.run([*resume, "0"], env=env, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"StorageUnavailable {saved}/step-00000120/{file} cannot be read: {words}.")
    assert sorted(path.name for path in saved.iterdir()) == ["step-00000060", "step-00000120"]
    waiting = subprocess.Popen([*resume, "60"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr
    assert "retrying for 60 s" in waiting.stderr.readline()
    lasts.unlink()
    assert waiting.communicate()[0] == "120\n"


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A directory into which any user may write."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("hidden", ["step-00000120/state.pt", "step-00000120/manifest.json", "step-00000120"])
def test_what_only_another_user_may_read_ends_the_job_says_whose_it_is_and_is_not_removed(
    anybodys: Path, hidden: str
) -> None:
    save(anybodys, 60, 120)
    (anybodys / hidden).chmod(0)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            CheckpointDirectory(anybodys, keep=1).newest(Path.read_bytes, start_over=True, retry_seconds=0.3)
        except BaseException as error:  # noqa: BLE001  (whatever it is, the parent is told)
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    said = os.read(reading, 4096).decode()
    os.close(reading)
    assert said.startswith("ConfigError: ")  # It does not pass: the modes say so.
    assert "cannot be read: Permission denied. Retried for 0.3 s" in said
    whose = f"{anybodys / hidden} belongs to user 0, group 0, with mode 0000, and this process is user 65534"
    assert f"{whose}, group 65534" in said
    assert sorted(path.name for path in anybodys.iterdir()) == ["step-00000060", "step-00000120"]


def test_beside_a_writer_that_keeps_one_a_reader_always_finds_one(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    newest = int(writer.stdout.readline())
    until = time.monotonic() + 1
    while time.monotonic() < until:
        search = find_newest(lambda: checkpoints_in(tmp_path), Path.read_bytes, reader=FILES)
        assert search.found, search.passed_over
        assert search.found.manifest.step >= newest
        newest = search.found.manifest.step
    writer.kill()
    writer.communicate()
