"""DDPJob documents as people write them, and what is said of them."""

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.job_file import parse

HEAD = """\
apiVersion: ddpjob.dev/v1alpha2
kind: DDPJob
metadata:
  name: digits
spec:
"""
TEMPLATE = """\
  template:
    spec:
      containers:
        - name: trainer
          image: trainer:1
"""
CONTAINER = " " * 10


def a_file(spec: str = "", *, container: str = "", pod: str = "") -> str:
    """A valid file with these lines more in `spec` (from line 6), in the trainer container, and in the pod's spec."""
    indented = [(spec, "  "), (container, CONTAINER), (pod, " " * 6)]
    more = ["".join(f"{margin}{line}\n" for line in text.splitlines()) for text, margin in indented]
    return HEAD + more[0] + TEMPLATE + more[1] + more[2]


def job(text: str) -> DDPJob:
    """The job in a valid file."""
    return parse(text, "job.yaml").job


def complaint(text: str) -> str:
    """What is said of a file that is wrong; empty for a valid one."""
    try:
        parse(text, "job.yaml")
    except BadInputError as error:
        return str(error)
    return ""


def complaints(text: str) -> list[str]:
    """The problems of an invalid DDPJob, line by line."""
    first, *lines = complaint(text).splitlines() or [""]
    assert first == "job.yaml is not a valid DDPJob:", first
    return [line.strip() for line in lines]
