"""Number types that several fields share."""

from typing import Annotated

from pydantic import Field

MOST_SECONDS = 366 * 24 * 3600

Seconds = Annotated[int, Field(ge=0, le=MOST_SECONDS)]
PositiveSeconds = Annotated[int, Field(ge=1, le=MOST_SECONDS)]
