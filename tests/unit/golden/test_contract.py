"""The contract between operator, pods and users: one file that both sides are held to; neither imports the other."""

import json
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import Cause, contract
from ddpjob_operator.engine.incidents import crash_loop
from ddpjob_operator.engine.incidents.evidence import facts_of
from ddpjob_operator.engine.snapshot import Exit, Pod
from ddpjob_rank import errors
from ddpjob_rank.environment import Env as TrainerEnv
from ddpjob_rank.exit_codes import ExitCode as TrainerExitCode
from ddpjob_rank.failure.failure_report import report_of
from ddpjob_supervisor import main as supervisor
from ddpjob_supervisor.gang import judging, membership

from tests.unit.engine.builders import START

from .conftest import Golden

CONTRACT: dict[str, Any] = json.loads((Path(__file__).parent / "contract.json").read_text(encoding="utf-8"))


def names(holder: type) -> dict[str, str]:
    return {name: value for name, value in vars(holder).items() if name.isupper()}


def test_the_operators_side_is_the_golden_contract(golden: Golden) -> None:
    said = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "trainerContainer": contract.TRAINER_CONTAINER,
        "reservedVolumePrefix": contract.RESERVED_VOLUME_PREFIX,
        "maxNodes": contract.MAX_NODES,
        "maxNameLength": contract.MAX_NAME_LENGTH,
        "masterPort": contract.DEFAULT_MASTER_PORT,
        "statusPort": contract.DEFAULT_STATUS_PORT,
        "controlPort": contract.DEFAULT_CONTROL_PORT,
        "terminationLog": contract.TERMINATION_LOG_PATH,
        "attemptBegins": contract.ATTEMPT_BEGINS,
        "attemptEnded": contract.ATTEMPT_ENDED,
        "hold": contract.HOLD,
        "manager": contract.MANAGER,
        "labels": names(contract.Label),
        "env": names(contract.Env),
        "exitCodes": {code.name: code.value for code in contract.ExitCode},
    }
    golden("contract.json", json.dumps(said, indent=2) + "\n")


def test_every_variable_of_the_contract_is_reserved() -> None:
    assert set(CONTRACT["env"].values()) == contract.CONTRACT_VARIABLES


def test_the_trainer_reads_no_variable_that_the_contract_does_not_have() -> None:
    assert names(TrainerEnv).items() <= CONTRACT["env"].items()


def test_the_supervisor_prints_the_line_of_the_contract_before_an_attempt() -> None:
    assert CONTRACT["attemptBegins"] == membership.ATTEMPT_BEGINS
    assert CONTRACT["attemptEnded"] == membership.ATTEMPT_ENDED


def test_the_supervisor_has_the_option_of_the_contract_that_holds_nodes() -> None:
    assert supervisor._parser().parse_args([CONTRACT["hold"], "600"]).hold == 600


def test_the_trainer_exits_with_the_codes_of_the_contract() -> None:
    assert {code.name: code.value for code in TrainerExitCode} == CONTRACT["exitCodes"]


def test_the_supervisors_leave_to_the_operator_a_row_that_is_as_long_as_its_crash_loop() -> None:
    assert judging.LOOP == crash_loop.LOOP


@pytest.mark.parametrize(
    ("error", "cause", "message"),
    [
        (errors.ConfigError("no data in /data"), Cause.CONFIG_ERROR, "no data in /data"),
        (errors.StorageFullError("no room in /runs"), Cause.STORAGE_FULL, "no room in /runs"),
        (errors.StorageError("/runs is silent"), Cause.APPLICATION, "StorageError: /runs is silent"),
        (errors.StorageUnavailableError("/runs is silent"), Cause.STORAGE_UNAVAILABLE, "/runs is silent"),
        (errors.CheckpointUnusableError("all are broken"), Cause.CHECKPOINT_UNUSABLE, "all are broken"),
        (errors.PeerLostError("rank 1 is gone"), Cause.PEER_LOST, "rank 1 is gone"),
        (ValueError("no"), Cause.APPLICATION, "ValueError: no"),
    ],
)
def test_the_operator_understands_the_trainers_failure_report(error: Exception, cause: Cause, message: str) -> None:
    report = report_of(error, 3, 70)
    pod = Pod("job-3-x", "uid", 3, 1, exit=Exit(report.exit_code, "Error", report.to_json()))
    failure = facts_of(pod, 1, START)
    assert (failure.cause, failure.step) == (cause, 70)
    assert failure.message == message
