"""The steps that follow every verdict: they complete the status, and add actions that no policy decides on."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ddpjob_operator.api import State

from .changes import changed
from .checkpoint_requests import requested, requested_due
from .conditions import completed
from .decision import DeleteJob, DeletePod, MarkFinished, TellDomain
from .manifests.names import digest_of_name
from .policies import Verdict
from .policies.drains import protected, protected_due
from .policies.queue import queue_told, queue_told_due
from .policies.verdict import Times, never
from .supervision import silent_at, with_reports
from .view import View


def reported(view: View, verdict: Verdict) -> Verdict:
    """Adds what supervisors report to the status, whatever was decided."""
    return replace(verdict, status=with_reports(view, verdict.status))


def defaulted(view: View, verdict: Verdict) -> Verdict:
    """Fixes the organisation's defaults in the status of a job that begins, or ends before it has begun."""
    defaults = view.snapshot.defaults
    if view.status.begun or not verdict.status.begun or not defaults.sources:
        return verdict
    return replace(verdict, status=changed(verdict.status, defaults=defaults))


def derived(view: View, verdict: Verdict) -> Verdict:
    """Adds the derived fields to the status, and keeps the fields that only a newer operator knows."""
    status = completed(view, verdict.status, verdict.message, blocked=verdict.blocked, queued=verdict.queued)
    same = status == view.status
    # If nothing has changed, as is usual, the old object is kept: it already has the fields of a newer operator, and
    # `decide` needs no second view.
    return replace(verdict, status=view.status if same else view.status.kept_in(status))


def located(view: View, verdict: Verdict) -> Verdict:
    """Writes scheduled pods' topology domains into annotations, which supervisors read when an attempt starts."""
    domains = view.snapshot.domains
    if not domains or view.refused:
        return verdict
    pods = view.with_status(verdict.status).unlocated
    domain_of = ((pod, domains.get(pod.node_name or "")) for pod in pods)
    tells = (TellDomain(pod.name, pod.uid, domain) for pod, domain in domain_of if domain is not None)
    return replace(verdict, actions=(*verdict.actions, *tells))


def without_lost_pods(view: View, verdict: Verdict) -> Verdict:
    """Deletes pods from the API if their Kubernetes nodes do not answer and the operator's administrator permits it.

    If the gang goes on, its present pods stay until their loss has been handled, because a replacement created before
    that would have the same name.
    """
    if not view.snapshot.settings.force_delete_lost_pods:
        return verdict
    then = view.with_status(verdict.status)
    present = () if then.winds_down else tuple(then.current.values())
    # These pods are deleted without a grace period, because no kubelet is left to confirm their end.
    lost = (pod for pod in view.overdue if not pod.forced and pod not in present)
    return replace(verdict, actions=(*verdict.actions, *(DeletePod(pod.name, pod.uid, 0) for pod in lost)))


def marked(view: View, verdict: Verdict) -> Verdict:
    """Marks a job as finished in its metadata, when its last status is written.

    If the cluster refuses the mark, no retry is scheduled, because there may be thousands of finished jobs. The job's
    next round, whenever it comes, tries again.
    """
    snapshot, status = view.snapshot, verdict.status
    if not status.finished or DeleteJob() in verdict.actions:
        return verdict
    mark = f"{State.SUCCEEDED if status.succeeded else State.FAILED} {digest_of_name(snapshot.job)}"
    # If `snapshot.mark` is None (not empty), jobs are never marked, because a status cannot be lost without its job.
    # A copied job carries the mark of the original, which differs from `mark`.
    if snapshot.mark in {None, mark} or view.refused:
        return verdict
    return replace(verdict, actions=(*verdict.actions, MarkFinished(mark)))


def signed(view: View, verdict: Verdict) -> Verdict:
    """Names this operator in every status that it writes, and before it acts on another operator's job.

    This also answers an operator that asks whether this one is still running, by removing its question.
    """
    me, before, status = view.snapshot.settings.holder, view.status, verdict.status
    if not me.name:
        return verdict
    takes_over = before.operator not in {None, me.name} and (not before.finished or bool(verdict.actions))
    if status is before and not takes_over and not before.bookkeeping.contender:
        return verdict
    keeps_class = before.operator == me.name and before.start_time is not None
    class_name = before.class_name if keeps_class else me.class_name or None
    return replace(verdict, status=changed(status, operator=me.name, class_name=class_name, contender=None))


def _silence_due(view: View) -> Times:
    """When the silence of rank 0's supervisor will be reported as a condition."""
    if not view.status.finished:
        yield silent_at(view)


def _quiet_due(view: View) -> Times:
    """When a node will stop counting as ready because its supervisor does not answer."""
    if not view.status.finished:
        yield view.quiet_at
        yield view.missed_at


def _located_due(view: View) -> Times:
    """When to retry writing topology domains into pods, after a refusal."""
    if view.snapshot.refusal is not None and view.unlocated:
        yield view.snapshot.refusal.retry_at


def _loss_due(view: View) -> Times:
    """When the next pod will count as lost."""
    if view.snapshot.settings.force_delete_lost_pods:
        yield view.next_loss


@dataclass(frozen=True, slots=True)
class Step:
    """A step that follows every verdict, whichever policy the verdict comes from."""

    takes: Callable[[View, Verdict], Verdict]
    """Adds to a verdict, or returns it unchanged."""
    here: str
    """Why the step comes at this place in the order, between the previous and the next step."""
    due: Callable[[View], Times] = never
    """When the step may act differently merely because time has passed."""

    @property
    def name(self) -> str:
        """The name of the step's function."""
        return self.takes.__name__


AFTERWARDS: tuple[Step, ...] = (
    Step(reported, "What supervisors report is in the status before anything is derived from it.", _silence_due),
    Step(requested, "The last checkpoint that is reported may answer a request for a checkpoint.", requested_due),
    Step(defaulted, "Whether a job begins was decided, and the status is complete once its defaults are in it."),
    Step(derived, "The status is complete before anything is added to the actions that it authorises.", _quiet_due),
    Step(queue_told, "The report to a queue depends only on the status, which is complete by now.", queue_told_due),
    Step(protected, "Whether pods may be evicted depends only on the status, too.", protected_due),
    Step(
        located, "Only pods that the gang keeps get their topology domain, not those that are removed.", _located_due
    ),
    Step(without_lost_pods, "What a job leaves behind is removed before it is marked as finished.", _loss_due),
    Step(marked, "Nothing else that is done depends on the mark."),
    Step(signed, "The operator signs the status if it writes one, or does anything at all for another's job."),
)
