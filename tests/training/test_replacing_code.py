"""New code in a running job, as `ddpjob submit --replace --in-place` sends it: supervisors keep their pods."""

import contextlib
import hashlib
import uuid
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.training.gang import SCRIPT, Gang, a_gang
from tests.training.test_hold import LONG, Conversation, packed

OLD = packed(train=SCRIPT, word="WORD = 'old'")


def changed(number: int) -> bytes:
    """Code that says which it is before it trains."""
    return packed(train=f"import word\nprint(f'code {{word.WORD}}', flush=True)\n{SCRIPT}", word=f"WORD = {number}")


def place(directory: Path, node: int) -> Path:
    return directory / f"code-{node}"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with a_job(tmp_path) as gang:
        yield gang


@contextlib.contextmanager
def a_job(directory: Path, nodes: int = 2) -> Iterator[Gang]:
    """A job whose pods were made with OLD, and train."""
    with a_gang(directory, nodes) as gang:
        gang.uid, gang.places = str(uuid.uuid4()), place
        for node in range(nodes):
            made_with(gang, node, OLD)
            start(gang, node)
        gang.await_steps(1, least=3)
        yield gang


def made_with(gang: Gang, node: int, code: bytes) -> None:
    """A pod's volumes: its archive, and its working directory with the files."""
    (gang.directory / f"code-{node}.zip").write_bytes(code)
    zipfile.ZipFile(BytesIO(code)).extractall(place(gang.directory, node))


def start(gang: Gang, node: int, revision: int = 0, attempt: int = 1, peers: str = "") -> None:
    env = {
        "DDPJOB_CODE_ARCHIVE": str(gang.directory / f"code-{node}.zip"),
        "DDPJOB_CODE_REVISION": str(revision),
    }
    gang.start_node(node, "train.py", LONG, attempt=attempt, peers=peers, **env)


@contextlib.contextmanager
def speaking(gang: Gang) -> Iterator[Conversation]:
    conversation = Conversation({"DDPJOB_UID": gang.uid})
    try:
        yield conversation
    finally:
        conversation.leaves()


def replace(gang: Gang, code: bytes, revision: int) -> int:
    """Replaces the code; returns the attempt that runs it."""
    with speaking(gang) as conversation:
        assert conversation.prepares(code)["kind"] == "Ready"
        begun = conversation.applies(revision)
    assert begun["kind"] == "Begun", begun
    return int(begun["attempt"])


def says(gang: Gang, node: int, text: str) -> None:
    gang.wait(f"node {node} to print {text}", lambda: text in gang.log(node))


def test_ranks_restart_in_place_with_the_new_code_and_a_new_pod_gets_it_from_its_peers(gang: Gang) -> None:
    supervisors = {node: supervisor.pid for node, supervisor in gang.supervisors.items()}
    for revision in (1, 2):
        attempt = replace(gang, changed(revision), revision)
        assert attempt == revision + 1
        gang.await_steps(attempt, least=2)
        for node in range(2):
            says(gang, node, f"code {revision}")
            assert f"attempt {attempt} begins in place: new code" in gang.log(node)
    assert {node: supervisor.pid for node, supervisor in gang.supervisors.items()} == supervisors
    page = gang.status()
    assert (page["inPlaceRestarts"], page["incidents"]) == (0, [])
    assert {key: page["code"][key] for key in ("revision", "by", "attempt")} == {
        "revision": 2,
        "by": "alice",
        "attempt": 3,
    }
    gang.kill_node(1)
    made_with(gang, 1, OLD)  # As by an operator that has not seen the change yet.
    start(gang, 1, attempt=4)
    gang.await_steps(4)
    says(gang, 1, "code 2")


def test_a_new_rank_0_runs_the_code_that_the_job_names(gang: Gang) -> None:
    replace(gang, changed(1), 1)
    gang.await_steps(2)
    gang.kill_node(0)
    made_with(gang, 0, changed(1))
    start(gang, 0, revision=1, attempt=3, peers=gang.control(1))
    gang.await_steps(3)
    says(gang, 0, "code 1")
    assert (gang.status()["code"]["by"], gang.status()["code"]["attempt"]) == ("alice", 2)


@pytest.mark.parametrize("lost", [0, 1])
def test_if_the_command_dies_after_it_has_changed_the_job_the_next_new_pod_brings_the_code(
    gang: Gang, lost: int
) -> None:
    with speaking(gang) as conversation:
        assert conversation.prepares(changed(1))["kind"] == "Ready"
    gang.await_steps(1, least=10)
    assert gang.status()["attempt"] == 1, "nothing has changed yet"
    gang.kill_node(lost)
    made_with(gang, lost, changed(1))
    start(gang, lost, revision=1, attempt=2, peers=gang.control(1 - lost))
    gang.await_steps(2)
    for node in range(2):
        says(gang, node, "code 1")


def test_if_rank_0_is_killed_while_code_arrives_nothing_has_changed_and_the_same_code_can_be_sent_again(
    gang: Gang,
) -> None:
    with speaking(gang) as conversation:
        conversation.says(kind="ReplaceCode", digest=hashlib.sha256(changed(1)).hexdigest(), by="alice", version=3)
        assert conversation.hears() == {"kind": "SendCode"}
        conversation.says(kind="TheCode", data=b64encode(changed(1)[:100]).decode())
        gang.kill_node(0)
    made_with(gang, 0, OLD)
    start(gang, 0, attempt=2, peers=gang.control(1))
    gang.await_steps(2)
    assert replace(gang, changed(1), 1) == 3
    gang.await_steps(3)
    for node in range(2):
        says(gang, node, "code 1")
    assert gang.status()["incidents"] == []


def test_if_a_node_is_lost_between_ready_and_apply_its_new_pod_brings_the_code(gang: Gang) -> None:
    with speaking(gang) as conversation:
        assert conversation.prepares(changed(1))["kind"] == "Ready"
        gang.kill_node(1)
        answer = conversation.applies(1)
    # Rank 0's supervisor may have noticed before, or not.
    assert answer["kind"] == "Begun" or answer["later"], answer
    made_with(gang, 1, changed(1))
    start(gang, 1, revision=1, attempt=2)
    gang.await_steps(2)
    for node in range(2):
        says(gang, node, "code 1")
    page = gang.status()
    assert (page["incidents"], page["code"].get("failed")) == ([], None), "the code is not blamed for it"


def test_a_failure_after_the_code_was_prepared_restarts_the_code_that_runs(gang: Gang) -> None:
    replace(gang, changed(1), 1)
    gang.await_steps(2)
    with speaking(gang) as conversation:
        conversation.prepares(changed(2))
    gang.ranks(1)[-1].kill()
    gang.await_steps(3)
    assert "code 2" not in gang.log(0) + gang.log(1)


def test_what_cannot_be_replaced_is_said(gang: Gang) -> None:
    with speaking(gang) as conversation:
        assert conversation.runs(changed(1), "train.py")["why"] == "it is not held: it has a program of its own"
    with speaking(gang) as conversation:
        conversation.says(kind="ReplaceCode", digest="../../etc", by="alice", version=3)
        assert conversation.hears() == {"kind": "SendCode"}
        assert conversation.hears()["why"] == "the code's digest is not a SHA-256"
    replace(gang, changed(1), 5)
    gang.await_steps(2)
    with speaking(gang) as conversation:
        conversation.prepares(changed(2))
        assert conversation.applies(5)["why"] == "its ranks run revision 5 of the code already"


def test_the_same_code_again_restarts_nothing(gang: Gang) -> None:
    attempt = replace(gang, changed(1), 1)
    gang.await_steps(attempt)
    assert replace(gang, changed(1), 1) == attempt
    assert gang.status()["attempt"] == attempt


BROKEN = packed(train="import word\nprint(missing, flush=True)\n", word="WORD = 'broken'")


def test_new_code_that_fails_before_its_first_step_gives_way_to_the_former_code_in_the_same_processes(
    gang: Gang,
) -> None:
    supervisors = {node: supervisor.pid for node, supervisor in gang.supervisors.items()}
    attempt = replace(gang, changed(1), 1)
    gang.await_steps(attempt, least=2)
    with speaking(gang) as conversation:
        ready = conversation.prepares(BROKEN)
        assert ready == {"kind": "Ready", "former": hashlib.sha256(changed(1)).hexdigest()}
        assert conversation.applies(2) == {"kind": "Begun", "attempt": attempt + 1, "former": ready["former"]}
        tried = conversation.hears()
    assert tried["kind"] == "Tried"
    assert "Application: NameError: name 'missing' is not defined (train.py:2)" in tried["failed"]
    gang.await_steps(attempt + 2, least=2)
    for node in range(2):
        says(gang, node, f"attempt {attempt + 2} begins in place: code")
        assert gang.log(node).count("code 1\n") == 2, "the former code, with its files"
    assert {node: supervisor.pid for node, supervisor in gang.supervisors.items()} == supervisors
    page = gang.status()
    assert (page["inPlaceRestarts"], page["incidents"]) == (0, [])
    assert (page["code"]["revision"], page["code"]["failed"]["revision"]) == (2, 2)
    assert page["code"]["digest"] == hashlib.sha256(changed(1)).hexdigest()
    with speaking(gang) as conversation:
        assert conversation.prepares(BROKEN)["why"].startswith("this code failed in attempt 3 before its first step")
