"""Each rule by its examples, in Python; tests/cluster/test_crd.py tries the same ones on a real API server, in CEL.

Every rule has something that breaks it and the nearest that does not.
"""

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.problems import dotted
from ddpjob_operator.api.rules import FIXED, RULES, Fixed, Rule
from ddpjob_operator.api.validation import problems

from tests.support.refused_jobs import BY_CRD, BY_POD, CASES, CHANGES, NEW_JOBS, Case, Values, a_job


@pytest.mark.parametrize("case", [*NEW_JOBS, *BY_CRD, *BY_POD], ids=str)
def test_what_a_cluster_refuses_we_refuse_and_nothing_beside_it(case: Case) -> None:
    assert isinstance(case.rule, Rule)
    found = [*case.rule.problems(a_job(case.bad))]
    assert found
    assert all(dotted(problem.path).startswith(case.path.partition("[]")[0]) for problem in found)
    assert set(found) <= set(problems(a_job(case.bad)))
    assert problems(a_job(case.good)) == []


@pytest.mark.parametrize("case", CHANGES, ids=str)
def test_a_change_that_a_cluster_refuses_breaks_the_rule_in_python_too(case: Case) -> None:
    def spec(values: Values) -> dict[str, object]:
        return DDPJob.from_dict(a_job(values)).spec.to_dict()

    assert isinstance(case.rule, Fixed)
    assert case.rule.broken(spec(case.bad), spec({}))
    assert case.rule.broken(spec({}), spec(case.bad))
    assert not case.rule.broken(spec(case.good), spec({}))
    if case.rule.while_suspended:
        assert not case.rule.broken(spec({}), spec(case.good))


@pytest.mark.parametrize("rule", [*RULES, *FIXED], ids=lambda rule: f"{rule.path}-{rule.said}"[:60])
def test_every_rule_has_an_example(rule: Rule | Fixed) -> None:
    assert any(case.rule is rule for case in CASES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.path}-{rule.said}"[:60])
def test_a_rule_is_one_of_the_api_server_or_says_what_happens_instead(rule: Rule) -> None:
    assert bool(rule.cel) != bool(rule.beside)
