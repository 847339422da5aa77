"""Decides what to do about an incident, from its facts: by the user's rules, else by the defaults."""

from dataclasses import dataclass

from ddpjob_operator.api import Cause, Incident, Restart, RestartAction, RestartRule
from ddpjob_operator.api.contract import ExitCode
from ddpjob_operator.api.words import intervals
from ddpjob_operator.engine.reports import CLAIMABLE

from .facts import SIGNAL_BASE, Facts

DEFAULTS: dict[str, RestartAction] = {
    # Another attempt may help, and counts as a restart.
    Cause.APPLICATION: RestartAction.RESTART,
    Cause.OUT_OF_MEMORY: RestartAction.RESTART,
    Cause.STORAGE_EXCEEDED: RestartAction.RESTART,
    Cause.PREFLIGHT_FAILED: RestartAction.RESTART,
    Cause.STALLED: RestartAction.RESTART,
    Cause.PEER_LOST: RestartAction.RESTART,
    Cause.STOPPED: RestartAction.RESTART,  # The sender of the signal is unknown. (A deleted pod has another cause.)
    # These are disruptions: the job is not at fault.
    Cause.POD_DELETED: RestartAction.RESTART_FREE,
    Cause.EVICTED: RestartAction.RESTART_FREE,
    Cause.PREEMPTED: RestartAction.RESTART_FREE,
    Cause.NODE_LOST: RestartAction.RESTART_FREE,
    Cause.DEVICE_FAILED: RestartAction.RESTART_FREE,
    Cause.STORAGE_UNAVAILABLE: RestartAction.RESTART_FREE,
    # Another attempt cannot help.
    Cause.CONFIG_ERROR: RestartAction.FAIL,
    Cause.DIVERGED: RestartAction.FAIL,
    Cause.STORAGE_FULL: RestartAction.FAIL,
    Cause.CHECKPOINT_UNUSABLE: RestartAction.FAIL,
    Cause.IMAGE_ERROR: RestartAction.FAIL,
    Cause.START_ERROR: RestartAction.FAIL,
}
"""The action for each cause, if none of the user's rules applies."""
BY_RULE_ONLY = frozenset({Cause.STARTED_OVER})
"""Causes that end an attempt only if one of the user's rules names them."""
UNKNOWN = RestartAction.RESTART
"""The action for a cause that only a newer operator knows."""

CAME_UP_BEFORE = frozenset({Cause.IMAGE_ERROR, Cause.START_ERROR})
"""Causes for which another attempt can help if the job has run before, because then its image and all objects that it
needs have existed."""

BY_DEFAULT = "default"
"""The value of `Judgement.rule` if none of the user's rules matches."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The action that follows an incident, and the rule that demands it."""

    action: RestartAction | str
    rule: str

    @classmethod
    def of(cls, incident: Incident) -> "Judgement":
        """Returns the judgement of an incident from the status."""
        return cls(incident.action, incident.rule)


def judge(restart: Restart, incident: Facts, *, has_run: bool) -> Judgement:
    """Judges an incident by the user's rules or, if none matches, by the defaults.

    `has_run` is true if all ranks have run since the job was started or resumed.
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
    """Returns the facts that a judgement depends on, which are those that a rule can match."""
    return incident.cause, incident.exit_code, incident.signal


def left_to_operator(restart: Restart) -> str:
    """Returns the failures that a supervisor leaves to the operator, as a list in the contract's format.

    After some of them the job may have to fail, and after a broken GPU it has to move to another Kubernetes node.

    The list may contain too many failures, but never too few. A rule matches only if all its fields do, so listing
    the values of one field is enough.
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
    """Whether every field that the rule sets matches the incident."""
    return (
        (rule.exit_codes is None or rule.exit_codes.matches(incident.exit_code))
        and (rule.signals is None or incident.signal in rule.signals)
        and (rule.causes is None or incident.cause in rule.causes)
    )
