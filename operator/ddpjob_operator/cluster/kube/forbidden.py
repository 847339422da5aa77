"""What an API server forbids: asked again after a while, since roles are changed while we run."""

import time

AGAIN_SECONDS = 60.0


class Forbidden:
    """Where something that all else can do without was forbidden lately."""

    def __init__(self) -> None:
        self._until: dict[str | None, float] = {}
        """By namespace, None for what is in none."""

    def there(self, namespace: str | None = None) -> bool:
        """Whether it would be in vain to ask again now."""
        return time.monotonic() < self._until.get(namespace, 0.0)

    def refused(self, namespace: str | None = None) -> bool:
        """It was forbidden; whether that is news."""
        news = namespace not in self._until
        self._until[namespace] = time.monotonic() + AGAIN_SECONDS
        return news

    def permitted(self, namespace: str | None = None) -> None:
        """It was not."""
        self._until.pop(namespace, None)
