"""Plans that once found a fault of the operator, and what it was: these are tried every time."""

EVER_FAILED = {
    "409-on-delete-pod": (
        "A pod whose deletion met a conflict was taken for gone for ever: it went on beside its successor."
    ),
}
