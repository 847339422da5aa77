"""Whose code a file is, by its path: a library's, ours or, if neither, the program's."""

LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")
OURS = ("/ddpjob_rank/", "/ddpjob_supervisor/", "/ddpjob_trainer/", "/ddpjob_examples/", "/ddpjob_preflight/")
STARTERS = ("/ddpjob_rank/running/", "/ddpjob_supervisor/")


def is_of_a_library(file: str) -> bool:
    """Whether it is installed, perhaps with us, or Python's own."""
    return any(part in file for part in LIBRARIES)


def is_ours(file: str) -> bool:
    """Whether it is DDPJob's, as a workload may be as well."""
    return any(part in file for part in OURS)


def starts_programs(file: str) -> bool:
    """Whether it is of ours what becomes a program; the rest of ours may be one."""
    return any(part in file for part in STARTERS)
