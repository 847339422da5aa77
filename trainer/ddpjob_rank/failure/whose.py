"""Decides from a file's path whose code it is: a library's, DDPJob's (`OURS`) or, if neither, the program's."""

LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")
OURS = ("/ddpjob_rank/", "/ddpjob_supervisor/", "/ddpjob_trainer/", "/ddpjob_examples/", "/ddpjob_preflight/")
CALL = "/ddpjob_call.py"
"""The script that DDPJob sends with a function, and that calls it."""
STARTERS = ("/ddpjob_rank/running/", "/ddpjob_supervisor/", CALL)


def is_of_a_library(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package, including DDPJob."""
    return any(part in file for part in LIBRARIES)


def is_ours(file: str) -> bool:
    """Whether a file belongs to DDPJob. A part of DDPJob, such as `ddpjob-train`, may itself be the program."""
    return any(part in file for part in OURS)


def starts_programs(file: str) -> bool:
    """Whether a file belongs to the part of DDPJob that starts programs.

    Other parts may themselves be the program.
    """
    return any(part in f"/{file}" for part in STARTERS)  # A script's path may be relative.
