"""What to do about an incident: the user's rules, then the defaults. Facts go in, an action comes out."""

from dataclasses import dataclass

from ddpjob_operator.api import Cause, Incident, Restart, RestartAction, RestartRule
from ddpjob_operator.api.contract import ExitCode
from ddpjob_operator.api.words import intervals
from ddpjob_operator.engine.reports import CLAIMABLE

from .facts import SIGNAL_BASE, Facts

DEFAULTS: dict[str, RestartAction] = {
    # Trying again may help, and counts as a restart.
    Cause.APPLICATION: RestartAction.RESTART,
    Cause.OUT_OF_MEMORY: RestartAction.RESTART,
    Cause.STORAGE_EXCEEDED: RestartAction.RESTART,
    Cause.PREFLIGHT_FAILED: RestartAction.RESTART,
    Cause.STALLED: RestartAction.RESTART,
    Cause.PEER_LOST: RestartAction.RESTART,
    Cause.STOPPED: RestartAction.RESTART,  # It is unknown who stopped it. A deletion is a cause of its own.
    # Disruptions: nothing in the job is at fault.
    Cause.POD_DELETED: RestartAction.RESTART_FREE,
    Cause.EVICTED: RestartAction.RESTART_FREE,
    Cause.PREEMPTED: RestartAction.RESTART_FREE,
    Cause.NODE_LOST: RestartAction.RESTART_FREE,
    Cause.DEVICE_FAILED: RestartAction.RESTART_FREE,
    Cause.STORAGE_UNAVAILABLE: RestartAction.RESTART_FREE,
    # Trying again cannot help.
    Cause.CONFIG_ERROR: RestartAction.FAIL,
    Cause.DIVERGED: RestartAction.FAIL,
    Cause.STORAGE_FULL: RestartAction.FAIL,
    Cause.CHECKPOINT_UNUSABLE: RestartAction.FAIL,
    Cause.IMAGE_ERROR: RestartAction.FAIL,
    Cause.START_ERROR: RestartAction.FAIL,
}
"""The action for each cause; the user's rules come first."""
BY_RULE_ONLY = frozenset({Cause.STARTED_OVER})
"""Causes that end an attempt only if a rule of the user names them."""
UNKNOWN = RestartAction.RESTART
"""The action for a cause that only a newer operator knows."""

CAME_UP_BEFORE = frozenset({Cause.IMAGE_ERROR, Cause.START_ERROR})
"""Causes for which trying again can help if the job has run before: the image, and the objects that the job needs,
existed then."""

BY_DEFAULT = "default"
"""What `Judgement.rule` holds if no rule of the user matches."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do about an incident, and the rule that says so."""

    action: RestartAction | str
    rule: str

    @classmethod
    def of(cls, incident: Incident) -> "Judgement":
        """The judgement of an incident in the status."""
        return cls(incident.action, incident.rule)


def judge(restart: Restart, incident: Facts, *, has_run: bool) -> Judgement:
    """The judgement by the user's rules or, if none matches, by default.

    `has_run`: whether all ranks have run since the job was started or resumed.
    """
    for index, rule in enumerate(restart.rules):
        if _matches(rule, incident):
            return Judgement(rule.action, f"spec.restart.rules[{index}]")
    action = DEFAULTS.get(incident.cause, UNKNOWN)
    if has_run and incident.cause in CAME_UP_BEFORE:
        action = RestartAction.RESTART
    if incident.exit_code == ExitCode.PREFLIGHT_NEVER and incident.cause is Cause.PREFLIGHT_FAILED:
        action = RestartAction.FAIL
    return Judgement(action, BY_DEFAULT)


def grounds(incident: Facts) -> tuple[str, int | None, str | None]:
    """The facts that a judgement rests on: all that a rule can match."""
    return incident.cause, incident.exit_code, incident.signal


def left_to_operator(restart: Restart) -> str:
    """The failures that a supervisor leaves to the operator, as a list in the contract's form.

    After some of them the job may have to fail; after a broken GPU it has to go to another Kubernetes node.

    The list may name too many failures, never too few: a rule matches only if all its fields do, so listing one of
    the fields is enough.
    """
    finals: list[str] = sorted(
        cause for cause, action in DEFAULTS.items() if action is RestartAction.FAIL and cause in CLAIMABLE
    )
    finals.append(Cause.DEVICE_FAILED)
    for rule in (rule for rule in restart.rules if rule.action is RestartAction.FAIL):
        codes = [intervals(rule.exit_codes.matching())] if rule.exit_codes else []
        signals = [str(SIGNAL_BASE + signal.number) for signal in rule.signals or ()]
        finals += codes or signals or [cause for cause in rule.causes or () if cause in CLAIMABLE]
    return ",".join(dict.fromkeys(finals))


def _matches(rule: RestartRule, incident: Facts) -> bool:
    """Whether every field that the rule sets matches."""
    return (
        (rule.exit_codes is None or rule.exit_codes.matches(incident.exit_code))
        and (rule.signals is None or incident.signal in rule.signals)
        and (rule.causes is None or incident.cause in rule.causes)
    )
