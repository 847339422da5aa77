"""Kinds of numbers that several fields are."""

from typing import Annotated

from pydantic import Field

Seconds = Annotated[int, Field(ge=0, le=366 * 24 * 3600)]
PositiveSeconds = Annotated[int, Field(ge=1, le=366 * 24 * 3600)]
