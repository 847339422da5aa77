"""Why a checkpoint cannot be used: four cases, and none of them means that it is worth nothing.

UnusableError
+-- ForeignError     not a checkpoint of this program: it is left alone, and is no reason for anything
+-- NewerError       whole, and this version cannot read it: another one can
+-- UnavailableError the file system does not let it be read now, which may pass
|   +-- VanishedError   it has been removed meanwhile
+-- BrokenError      a checkpoint of this program, and not whole: the one before it counts
"""


class UnusableError(Exception):
    """A checkpoint cannot be used; the message says why."""


class ForeignError(UnusableError):
    """It is nobody knows whose: it has no manifest of this program."""


class NewerError(UnusableError):
    """It is whole, and not for this version."""


class UnavailableError(UnusableError):
    """It cannot be read now."""


class VanishedError(UnavailableError):
    """It has been removed or replaced while it was read."""


class BrokenError(UnusableError):
    """It is this program's, and not whole."""
