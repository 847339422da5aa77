"""Generates sections of docs/reference/lifecycle.md, including the chain of policies."""

from collections.abc import Iterable

from ddpjob_operator.api import Cause, ConditionType, DDPJobSpec, RestartAction, State
from ddpjob_operator.api.reasons import ADVICE, PASSES, Reason
from ddpjob_operator.api.rules import FIXED
from ddpjob_operator.engine.afterwards import AFTERWARDS
from ddpjob_operator.engine.conditions import ANNOUNCED, WARNINGS
from ddpjob_operator.engine.incidents.judgement import BY_RULE_ONLY, DEFAULTS
from ddpjob_operator.engine.incidents.pod_reasons import ENDED, REJECTED, UNSUPPORTED, rejection_cause
from ddpjob_operator.engine.kstatus import CONDITION_OF
from ddpjob_operator.engine.policies import CHAIN
from ddpjob_operator.engine.policies.queue import BLOCKING

from .markdown import code, table
from .source import first_paragraph, meanings

DEFAULT_ANSWERS = {
    RestartAction.RESTART: "a restart that counts",
    RestartAction.RESTART_FREE: "a restart that does not count",
    RestartAction.FAIL: "the job fails",
}


KSTATUS = {
    ConditionType.RECONCILING: (code(ConditionType.RECONCILING), "They wait."),
    ConditionType.STALLED: (code(ConditionType.STALLED), "They give up, with the message."),
    None: ("neither", "They go on: the job is as it should be."),
}


def states() -> str:
    """The states of a job, which are single words."""
    return table(("State", "Meaning"), ((code(value), text) for _, value, text in meanings(State)))


def conditions() -> str:
    """The conditions, and the events that they cause."""
    rows = ((code(value), text, _event(ConditionType(value))) for _, value, text in meanings(ConditionType))
    return table(("Condition", "What it says", "Event when it becomes true"), rows)


def kstatus() -> str:
    """How tools that wait for kstatus conditions behave in each state."""
    asked = [(code(state), condition) for state, condition in CONDITION_OF.items()]
    states = [
        (", ".join(word for word, one in asked if one is condition), *told) for condition, told in KSTATUS.items()
    ]
    ending = ("any, once `SuccessCriteriaMet` or `FailureTarget` is true", *KSTATUS[ConditionType.RECONCILING])
    changed = ("any, while `observedGeneration` is not the spec's", "", "They wait.")
    return table(("State", "Condition", "What they do"), (*states, ending, changed))


def kstatus_blocked() -> str:
    """Which reasons of `Blocked` are temporary."""
    words = {
        "`Reconciling`": _listed(reason for reason, passes in PASSES.items() if passes),
        "`Stalled`": _listed(reason for reason, passes in PASSES.items() if not passes)
        + "; Kueue's "
        + _listed(sorted(BLOCKING)),
    }
    return table(("Condition", "Reasons of `Blocked`"), words.items())


def reasons() -> str:
    """The reasons of conditions, and what to do about each."""
    rows = ((code(value), text, ADVICE[Reason(value)]) for _, value, text in meanings(Reason))
    return table(("Reason", "Meaning", "What to do"), rows)


def causes() -> str:
    """The causes of failures, the default reaction to each, and what to do about it."""
    rows = ((code(value), text, _answer(Cause(value)), ADVICE[Cause(value)]) for _, value, text in meanings(Cause))
    return table(("Cause", "Meaning", "By default", "What to do"), rows)


def pod_reasons() -> str:
    """What the reason of a pod as a whole means, and who is to blame."""
    by_cause: dict[Cause, list[str]] = {}
    for reason, cause in ENDED.items():
        by_cause.setdefault(cause, []).append(reason)
    rows = [(_listed(reasons), "The kubelet ended the pod.", cause) for cause, reasons in by_cause.items()]
    lacks = "The Kubernetes node rejected the pod."
    forbids = "The Kubernetes node does not allow what the template asks for."
    after = "The Kubernetes node no longer allows what the template asks for, and has ended the trainer."
    rows += [
        (_listed([*sorted(REJECTED), "OutOf…"]), lacks, Cause.EVICTED),
        (_listed(sorted(UNSUPPORTED)), forbids, rejection_cause(min(UNSUPPORTED), ran=False)),
        ("the same", after, rejection_cause(min(UNSUPPORTED), ran=True)),
    ]
    told = ((reasons, what, f"{code(cause)}: {_answer(cause)}") for reasons, what, cause in rows)
    return table(("Reason of the pod", "Meaning", "Cause, and who pays"), told)


def _answer(cause: Cause) -> str:
    return "nothing, without a rule" if cause in BY_RULE_ONLY else DEFAULT_ANSWERS[DEFAULTS[cause]]


def changes() -> str:
    """When each field of `spec` may be changed, according to the rules that the API server enforces."""
    ruled = {rule.field: rule.while_suspended for rule in FIXED}
    fields = [str(field.alias) for field in DDPJobSpec.model_fields.values()]
    when = {
        "always": [field for field in fields if field not in ruled],
        "only while the job is suspended": [field for field in fields if ruled.get(field) is True],
        "never": [field for field in fields if ruled.get(field) is False],
    }
    return table(("It may change", "Fields"), ((said, _listed(some)) for said, some in when.items()))


def policies() -> str:
    """The policies of the chain and the steps after it, in the order in which they run."""
    chain = ((code(one.name), first_paragraph(one.decides), one.here) for one in CHAIN)
    steps = ((code(one.name), first_paragraph(one.takes), one.here) for one in AFTERWARDS)
    return table(("Policy or step", "In one sentence", "Why here"), (*chain, *steps))


def _event(condition: ConditionType) -> str:
    if condition not in ANNOUNCED:
        return "none"
    return "Warning" if condition in WARNINGS else "Normal"


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(code(field) for field in fields)
