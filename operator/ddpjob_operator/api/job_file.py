"""Reads DDPJobs from YAML files, reporting every mistake with its line, and writes them."""

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml

from .contract import KIND, TRAINER_CONTAINER
from .job import DDPJob
from .problems import BadInputError, InvalidJobError
from .validation import problems
from .yaml_documents import parsed_documents

OTHER_JOBS = {
    "kubeflow.org/PyTorchJob": "its Master and Workers are spec.nodes, nprocPerNode is spec.procsPerNode, and the"
    f" Worker's template is spec.template, with its container named {TRAINER_CONTAINER}",
    "trainer.kubeflow.org/TrainJob": "its trainer.numNodes is spec.nodes, trainer.numProcPerNode is"
    " spec.procsPerNode, and image, command, args and env are those of the container named"
    f" {TRAINER_CONTAINER} in spec.template",
    "batch/Job": "the Job's completions are spec.nodes, backoffLimit is spec.restart.maxRestarts, and template is"
    f" spec.template, with its container named {TRAINER_CONTAINER}",
}
"""How to convert a job of another kind to a DDPJob, by the job's API group and kind."""


LONGEST_TEXT = 4 << 20
"""The largest number of characters that a file may have. An API server accepts no object as large as this."""


@dataclass(frozen=True)
class JobFile:
    """The DDPJob in a file, and the kinds of the file's other objects."""

    job: DDPJob
    document: dict[str, Any]
    others: tuple[str, ...]
    """Kinds of the file's other objects."""


def read(file: FilePath) -> JobFile:
    """Reads the only DDPJob in a YAML file.

    Raises:
        BadInputError: the file cannot be read, is not YAML, or does not contain exactly one DDPJob.
        InvalidJobError: the DDPJob is not valid. The error lists every problem with its line.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LONGEST_TEXT + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInputError(f"cannot read {file}: {reason}") from None
    return parse(text, str(file))


def parse(text: str, source: str) -> JobFile:
    """Parses a text as `read` parses a file. `source` is the text's name in messages."""
    if len(text) > LONGEST_TEXT:
        raise BadInputError(
            f"{source} is larger than {LONGEST_TEXT >> 20} MiB; an API server accepts no object of this size"
        )
    documents = parsed_documents(text, source)
    jobs = [document for document in documents if document.kind == KIND]
    if len(jobs) != 1:
        have = ", ".join(document.kind for document in documents) or "nothing"
        known = [] if jobs else [OTHER_JOBS[other.type] for other in documents if other.type in OTHER_JOBS]
        advice = f"; as a DDPJob, {known[0]}" if known else ""
        raise BadInputError(f"{source} must hold exactly one object of kind {KIND}, but holds {have}{advice}")
    found = [*jobs[0].repeated, *problems(jobs[0].value)]
    if found:
        placed = sorted((jobs[0].line(problem.path), str(problem)) for problem in found)
        raise InvalidJobError(source, [f"line {line}: {problem}" for line, problem in placed])
    document = {key: value for key, value in jobs[0].value.items() if key != "status"}
    others = tuple(document.kind for document in documents if document is not jobs[0])
    return JobFile(DDPJob.from_dict(document), document, others)


def written(value: Any) -> str:
    """Formats a value as YAML in the way that people write it.

    Fields keep their order, lists of strings are on one line, and other lists and scripts are indented.
    """
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


class _Dumper(yaml.SafeDumper):
    """Writes YAML in the style of `written`."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Writes repeated values out in full every time, as a person would, instead of using YAML aliases."""
        return True


def _sequence(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    words = all(isinstance(item, str) and "\n" not in item for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=words)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(str, _text)
