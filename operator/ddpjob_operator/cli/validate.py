"""`ddpjob validate FILE`: checks the DDPJob in a YAML file, without a cluster and without starting it."""

import sys
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.job_file import JobFile, parse, read

INPUT = Path("-")


def validate(files: list[Path]) -> int:
    """Checks each file, and prints which DDPJobs are valid.

    Raises:
        BadInputError: some are invalid; the message lists all problems of all files.
    """
    wrong = []
    for file in files:
        try:
            job_file = _read(file)
        except BadInputError as error:
            wrong.append(str(error))
        else:
            others = f"; not checked: {', '.join(job_file.others)}" if job_file.others else ""
            print(f"{file}: DDPJob {job_file.job.metadata.name} is valid{others}")
    if wrong:
        raise BadInputError("\nerror: ".join(wrong))
    return 0


def _read(file: Path) -> JobFile:
    if file != INPUT:
        return read(file)
    try:
        return parse(sys.stdin.buffer.read().decode(), "standard input")
    except UnicodeDecodeError:
        raise BadInputError("cannot read standard input: it is not UTF-8 text") from None
