"""What the operator's own counters count."""

from collections.abc import Iterator
from contextlib import contextmanager

from ddpjob_operator.cluster.serve.metrics import REGISTRY


@contextmanager
def counts(series: str, times: int = 1, **labels: str) -> Iterator[None]:
    """Within this, a counter goes on by so much."""
    before = REGISTRY.get_sample_value(series, labels) or 0.0
    yield
    assert (REGISTRY.get_sample_value(series, labels) or 0.0) - before == times, (series, labels)
