"""Attributes that are computed once per object."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached(Generic[T]):  # noqa: N801  In lower case like `property` and `functools.cached_property`.
    """`functools.cached_property` without its lock, which before Python 3.12 takes longer than computing most values.

    Two threads may both compute a value, but they get the same result.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        """Wraps a method without arguments."""
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, one: None, _: type) -> "cached[T]": ...
    @overload
    def __get__(self, one: object, _: type) -> T: ...
    def __get__(self, one: object | None, _: type) -> "cached[T] | T":
        """Computes the value once and stores it in the object, where it is found from then on."""
        if one is None:
            return self
        value = vars(one)[self._name] = self._work_out(one)
        return value
