"""The API server's rules, in CEL, and ours, which say the same in words with a line: refused by one, refused by both.

What the API server makes of its rules is tried on one (tests/cluster/test_crd.py); here ours meet the same jobs.
"""

from typing import Any

import pytest
from ddpjob_operator.api.crd import SPEC_RULES, TEMPLATE_RULES
from ddpjob_operator.api.problems import dotted
from ddpjob_operator.api.rules import RULES
from ddpjob_operator.api.validation import problems

from tests.support.refused_jobs import NEW_JOBS, Case, a_job

NOT_IN_CEL = {
    "unique_names": "lists whose items have names are maps to the API server",
    "bounded_template": "a list's length is the schema's to bound",
    "known_volumes": "the API server says it of the pod",
    "checkpoint_mount": "the API server says it of the pod",
}
"""Rules that only ours can say beforehand, and why."""


def refused(values: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in problems(a_job(values))]


@pytest.mark.parametrize("case", NEW_JOBS, ids=lambda case: f"{case.path}-{next(iter(case.bad.values()))}"[:60])
def test_what_the_api_server_refuses_we_refuse_and_nothing_beside_it(case: Case) -> None:
    found = [dotted(problem.path) for problem in problems(a_job(case.bad))]
    assert any(path.startswith(case.path) for path in found), found
    assert refused(case.good) == []


def test_every_rule_of_ours_is_one_of_the_api_server_or_says_why_not() -> None:
    bad = [a_job(case.bad) for case in NEW_JOBS]
    met = {rule.__name__ for rule in RULES if any(True for job in bad for _ in rule(job))}
    assert {rule.__name__ for rule in RULES} == met | set(NOT_IN_CEL)
    assert met.isdisjoint(NOT_IN_CEL)


def test_every_rule_about_a_new_job_has_a_case() -> None:
    about_new_jobs = {f"spec{rule['fieldPath']}" for rule in SPEC_RULES if "oldSelf" not in rule["rule"]}
    about_templates = {f"spec.template{path}" for path in TEMPLATE_RULES}
    assert about_new_jobs | about_templates <= {case.path for case in NEW_JOBS}
