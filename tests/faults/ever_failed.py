"""Plans that once found a fault of the operator, and what it was: these are tried every time."""

EVER_FAILED = {
    "409-on-delete-pod": (
        "A pod whose deletion met a conflict was taken for gone for ever: it went on beside its successor."
    ),
    "webhook-denies-pods-at-run": "The reason of the condition Blocked was a number, the webhook's status.",
    "clock-forwards-before-restart": (
        "By a clock set an hour ahead each pod that ended was lost, and each gang had waited too long for nodes."
    ),
}
