"""Why a checkpoint cannot be used. There are four cases, and in none of them is the checkpoint worthless.

UnusableError
+-- ForeignError     not a checkpoint of this program: it is left alone, and influences nothing
+-- NewerError       whole, but in a format that only another version can read
+-- UnavailableError the file system does not let it be read now, which may pass
|   +-- VanishedError   it was removed while it was read
+-- BrokenError      a checkpoint of this program, but not whole: the one before it counts
"""


class UnusableError(Exception):
    """A checkpoint cannot be used; the message says why."""


class ForeignError(UnusableError):
    """It has no manifest of this program, and may be anybody's."""


class NewerError(UnusableError):
    """It is whole, but in a format of another version."""


class UnavailableError(UnusableError):
    """It cannot be read now, which may pass."""


class VanishedError(UnavailableError):
    """It was removed or replaced while it was read."""


class BrokenError(UnusableError):
    """It is a checkpoint of this program, but not whole."""
