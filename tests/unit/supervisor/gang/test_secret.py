"""The job's secret: where it comes from, and who does without."""

import re
from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_supervisor.gang.secret import with_secret
from ddpjob_supervisor.gang.settings import read_settings

NODE = {"MASTER_PORT": "29500", "NNODES": "2", "NPROC_PER_NODE": "2", "WORLD_SIZE": "4"}
FIRST, SECOND = {**NODE, "NODE_RANK": "0"}, {**NODE, "NODE_RANK": "1"}
POD = {"DDPJOB_STATUS_PORT": "29501"}
SECRET = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def file(directory: Path, content: str = f"{SECRET}\n", mode: int = 0o600) -> dict[str, str]:
    """What names a file of that kind."""
    path = directory / "secret"
    path.write_text(content)
    path.chmod(mode)
    return {"DDPJOB_SECRET_FILE": str(path)}


def secret_of(env: dict[str, str]) -> bytes:
    return with_secret(read_settings(env), env).secret


@pytest.mark.parametrize("env", [FIRST, SECOND, FIRST | POD], ids=["first", "second", "pod"])
@pytest.mark.parametrize("master", ["job-0", "127.0.0.1"])
def test_a_file_has_it(env: dict[str, str], master: str, tmp_path: Path) -> None:
    assert secret_of({**env, "MASTER_ADDR": master, **file(tmp_path)}) == SECRET.encode()


@pytest.mark.parametrize("env", [{}, {**FIRST, "NNODES": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-0"}])
def test_one_node_needs_none(env: dict[str, str], tmp_path: Path) -> None:
    assert secret_of(env) == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "env",
    [
        FIRST | {"MASTER_ADDR": "127.0.0.1"},
        SECOND | {"MASTER_ADDR": "localhost"},
        FIRST | {"MASTER_ADDR": "::1"},
        FIRST | POD | {"MASTER_ADDR": "127.0.0.1", "DDPJOB_LISTEN_ADDR": "127.0.0.1"},
    ],
    ids=["first", "second", "IPv6", "local mode"],
)
def test_who_stays_on_this_machine_has_its_user_s_and_listens_nowhere_else(env: dict[str, str]) -> None:
    others = secret_of(SECOND | {"MASTER_ADDR": "127.0.0.1"})
    assert secret_of(env) == others
    assert len(others) >= 32
    assert read_settings(env).listen == env["MASTER_ADDR"]


@pytest.mark.parametrize(
    "env",
    [
        FIRST | {"MASTER_ADDR": "10.0.0.1"},
        SECOND | {"MASTER_ADDR": "first"},
        FIRST | {"MASTER_ADDR": "127.0.0.1", "DDPJOB_LISTEN_ADDR": "0.0.0.0"},
        SECOND | {"MASTER_ADDR": "127.0.0.1", "DDPJOB_PEERS": "10.0.0.1:29502"},
    ],
    ids=["listens to all", "goes elsewhere", "told to listen to all", "told to go elsewhere"],
)
def test_who_reaches_further_is_refused_without(env: dict[str, str]) -> None:
    told = re.escape("make one with (umask 077; openssl rand -hex 32 > FILE) on a disk that all nodes share")
    with pytest.raises(ConfigError, match=f"^the supervisors are on several machines, .*{told}"):
        secret_of(env)


def test_a_pod_of_an_older_operator_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^DDPJOB_SECRET_FILE is not set, .* upgrade the operator$"):
        secret_of(FIRST | POD | {"MASTER_ADDR": "job-0.job.team.svc"})


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (SECRET, 0o640, "others can reach it"),
        (SECRET, 0o604, "others can reach it"),
        (f" {SECRET[:31]}\n", 0o600, "a secret must have 32 to 4096 bytes, but this one 31 bytes"),
        ("", 0o600, "a secret must have 32 to 4096 bytes, but this one 0 bytes"),
        (SECRET * 100, 0o600, "a secret must have 32 to 4096 bytes, but this one more"),
    ],
)
def test_a_file_that_does_not_do_is_refused(content: str, mode: int, why: str, tmp_path: Path) -> None:
    told = re.escape(f"secret (DDPJOB_SECRET_FILE) cannot be used as a secret: {why}; make one with (umask 077; ")
    with pytest.raises(ConfigError, match=f"^/.*{told}"):
        secret_of({**FIRST, "MASTER_ADDR": "10.0.0.1", **file(tmp_path, content, mode)})


@pytest.mark.parametrize(
    ("name", "why"),
    [("none", "No such file or directory"), ("/dev/zero", "it is not a regular file"), (".", "it is not a")],
)
def test_what_is_no_file_is_named(name: str, why: str, tmp_path: Path) -> None:
    env = {**FIRST, **POD, "MASTER_ADDR": "job-0", "DDPJOB_SECRET_FILE": str(tmp_path / name)}
    with pytest.raises(ConfigError, match=rf"^/.* \(DDPJOB_SECRET_FILE\) cannot be used as a secret: {why}"):
        secret_of(env)


def test_in_a_pod_the_mount_says_who_reads_it(tmp_path: Path) -> None:
    assert secret_of({**FIRST, **POD, "MASTER_ADDR": "job-0", **file(tmp_path, mode=0o444)}) == SECRET.encode()


def test_a_user_s_that_others_could_have_put_there_is_not_taken(tmp_path: Path) -> None:
    env = {**FIRST, "MASTER_ADDR": "127.0.0.1"}
    secret_of(env)
    (directory,) = tmp_path.iterdir()
    directory.chmod(0o755)
    told = re.escape(
        f"the nodes that run on this machine cannot keep their secret in {directory}: others can reach it; either"
    )
    with pytest.raises(ConfigError, match=rf"^{told} remove the directory, .* each node with --secret-file FILE$"):
        secret_of(env)


def test_it_is_in_no_text_of_the_settings(tmp_path: Path) -> None:
    env = {**FIRST, "MASTER_ADDR": "job-0", **file(tmp_path)}
    assert SECRET not in repr(with_secret(read_settings(env), env))
