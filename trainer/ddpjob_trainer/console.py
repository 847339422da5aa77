"""What a run prints: results on stdout, warnings and errors on stderr, each line at once and whole."""

import sys


def say(line: str) -> None:
    """One line for whoever watches the run."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def record(word: str, **fields: object) -> None:
    """One line that programs read as well: a word, then `key=value`. Fields that are None are left out."""
    say(" ".join([word, *(f"{key}={value}" for key, value in fields.items() if value is not None)]))


def warn(message: str) -> None:
    """Something that is not as it should be and does not stop the run."""
    sys.stderr.write(f"warning: {message}\n")
    sys.stderr.flush()


def complain(message: str) -> None:
    """Why the run ends."""
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()
