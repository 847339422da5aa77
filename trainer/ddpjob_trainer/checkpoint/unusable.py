"""Why a checkpoint cannot be used: four cases, and none of them means that it is worth nothing.

UnusableError
+-- ForeignError     not a checkpoint of this program: it is left alone, and is no reason for anything
+-- NewerError       whole, and this version cannot read it: another one can
+-- UnreadableError  the file system does not let it be read now, which may pass
+-- BrokenError      a checkpoint of this program, and not whole: the one before it counts
"""


class UnusableError(Exception):
    """A checkpoint cannot be used; the message says why."""


class ForeignError(UnusableError):
    """It is nobody knows whose: it has no manifest of this program."""


class NewerError(UnusableError):
    """It is whole, and not for this version."""


class UnreadableError(UnusableError):
    """It cannot be read now."""

    @classmethod
    def of(cls, name: str, error: OSError) -> "UnreadableError":
        """What an error of the file system says about a file of it."""
        return cls(f"{name} cannot be read now: {error.strerror or error}")


class BrokenError(UnusableError):
    """It is this program's, and not whole."""
