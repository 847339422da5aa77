"""How long tests wait."""

import pytest

from tests.support import waiting


@pytest.mark.parametrize(("idle", "factor"), [(8.0, 1), (1.0, 1), (0.5, 2), (0.3, 1 / 0.3), (0.1, 4), (0.0, 4)])
def test_a_wait_is_the_longer_the_less_is_idle(monkeypatch: pytest.MonkeyPatch, idle: float, factor: float) -> None:
    times = iter([(0.0, 100.0), (3.0, 100.0 + 3 * idle)])
    monkeypatch.setattr(waiting.Idleness, "_now", lambda _: next(times))
    monkeypatch.setattr(waiting, "IDLENESS", waiting.Idleness())
    assert waiting.patience(10) == pytest.approx(10 * factor)


def test_what_was_long_ago_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, quiet = [(float(at), 0.0) for at in range(0, 31, 5)], [(float(at), at - 30.0) for at in (36, 42, 48)]
    times = iter([*busy, *quiet])
    monkeypatch.setattr(waiting.Idleness, "_now", lambda _: next(times))
    idleness = waiting.Idleness()
    cores = [idleness.cores for _ in range(9)]
    assert cores[5] == 0
    assert cores[-1] == 1
