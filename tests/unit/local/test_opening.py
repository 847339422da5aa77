"""What may change while a job's processes run."""

from ddpjob_operator.api.crd import SPEC_RULES
from ddpjob_operator.local.opening import FIXED
from pydantic.alias_generators import to_camel


def test_the_fields_that_stop_the_processes_first_are_those_that_a_cluster_lets_change_only_while_suspended() -> None:
    only_while_suspended = {
        rule["fieldPath"] for rule in SPEC_RULES if "only while the job is suspended" in rule["message"]
    }
    assert {f".{to_camel(field)}" for field in FIXED} == only_while_suspended
