"""Why a checkpoint cannot be used. There are four cases, and in none of them is the checkpoint worthless.

UnusableError
+-- ForeignError     not a checkpoint of this program: it is left alone, and influences nothing
+-- NewerError       complete, but in a format that only another version can read
+-- UnavailableError the file system does not allow it to be read now, which may pass
|   +-- VanishedError   it was removed while it was being read
+-- BrokenError      a checkpoint of this program, but incomplete: the previous checkpoint is used
"""


class UnusableError(Exception):
    """A checkpoint cannot be used. The message gives the reason."""


class ForeignError(UnusableError):
    """The checkpoint has no manifest of this program, so another program may have written it."""


class NewerError(UnusableError):
    """The checkpoint is complete, but in another version's format."""


class UnavailableError(UnusableError):
    """The checkpoint cannot be read now, but perhaps later."""

    lasting: bool = False
    """Whether it is known that the same request would fail again."""


class VanishedError(UnavailableError):
    """The checkpoint was removed or replaced while it was being read."""


class BrokenError(UnusableError):
    """The checkpoint is from this program, but incomplete."""
