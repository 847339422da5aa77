"""Plans that once found a fault of the operator, with a description of the fault. They are run every time."""

EVER_FAILED = {
    "403-for-a-while-on-queue-free-1": "Refused to give a queue's quota back, the operator asked again and again.",
    "409-on-delete-pod": (
        "A pod whose deletion met a conflict was taken for gone for ever: it went on beside its successor."
    ),
    "webhook-denies-pods-at-run": "The reason of the condition Blocked was a number, the webhook's status.",
    "clock-forwards-before-restart": (
        "By a clock set an hour ahead each pod that ended was lost, and each gang had waited too long for nodes."
    ),
    "every-second-answer-ahead-before-wait": (
        "By a server an hour ahead, which gave every second answer, a gang failed that waited for its second node."
    ),
    "every-second-answer-ahead-before-linger": (
        "By such a server, from one moment on, a job was deleted long before ttlSecondsAfterFinished was over."
    ),
    "lost-answer-status-succeeded": "What went with a status whose answer was lost was never told as an event.",
    "webhook-does-not-answer-at-run": "No user of a job was told that a webhook which pods need does not answer.",
    "410-on-watch-of-ddpjobs": "HTTP 410 in answer to the watch of jobs ended the process.",
    "truncated-line-of-ddpjobs": "Half a line of the watch of jobs ended the process.",
    "travel-back-to-start-2-after-resume": (
        "A process whose first lists were old made pods of a former attempt beside those that lived."
    ),
    **dict.fromkeys(
        (f"made-anew-late-after-{stage}" for stage in ("run", "restart", "resume", "scale")),
        "For a job that had been deleted, its Service and its Workload were created once more.",
    ),
}

MET_A_BOUND = frozenset(
    {
        "422-on-create-pod",
        "422-on-status",
        "422-on-status-failed",
        "422-on-status-failing",
        "made-anew-seen-after-scale",
        "reset-for-a-while-on-list-of-ddpjobs",
        "two-operators-from-restart-on",
        "two-operators-from-run-on",
        "two-operators-from-scale-on",
    }
)
"""Plans that failed although the operator was right, because a check was too strict. The check was corrected."""
