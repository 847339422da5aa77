"""`ddpjob init SCRIPT`: writes the DDPJob of `ddpjob run SCRIPT` into a YAML file, with a comment on each field."""

import argparse
import textwrap
from pathlib import Path
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.job_file import written

from . import program
from .invocation import itself

HEAD = """\
# On this machine:  ddpjob run {file}
# On a cluster:     kubectl apply -f {file}
# Is it right?      ddpjob validate {file}
"""

COMMENTS = {
    "nodes": "Each node gets one pod; on this machine a pod is a process.",
    "procsPerNode": "Training processes per node: one per GPU, as a rule.",
    "restart": "How many failures may restart all ranks; an hour of healthy training resets the count.",
    "checkpoint": "Ranks find this directory or URL in DDPJOB_CHECKPOINT_DIR; the script itself must save and load.\n"
    "On a cluster, mount a volume at a directory; otherwise it is lost with its pod.",
    "history": "Where logs, incidents and progress are kept for when the pods are gone: ddpjob logs --history.\n"
    "On a cluster, mount a volume at a directory; otherwise it is lost with its pod. mode Disabled: nowhere.",
    "template": "A Kubernetes pod template.",
    "image": "On a cluster: an image with your script and its imports. On this machine it is not used.",
    "command": "What each node runs. ddpjob-supervise in place of python restarts ranks in place when they fail.",
    "args": "The script's own arguments.",
    "env": "Variables for the ranks.",
}


def init(arguments: argparse.Namespace) -> int:
    """Writes the YAML file, and prints its path.

    Raises:
        BadInputError: there is no such program, an option is wrong, or the file exists already.
    """
    if not program.is_program(arguments):
        raise BadInputError(
            f"{arguments.target} is a YAML file already; check it with: {itself()} validate {arguments.target}"
        )
    document = program.document(arguments, 0, program.checkpoint_in(arguments.checkpoint))
    document["spec"] = {"nodes": 1, "procsPerNode": 1} | document["spec"]
    file: Path = arguments.output or Path(f"{document['metadata']['name']}.yaml")
    try:
        with file.open("x", encoding="utf-8") as content:
            content.write(HEAD.format(file=file) + commented(document))
    except FileExistsError:
        raise BadInputError(f"{file} exists already; remove it, or choose another with --output") from None
    except OSError as error:
        raise BadInputError(f"cannot write {file}: {error.strerror}; choose another with --output") from None
    print(f"written: {file}")
    return 0


def commented(document: dict[str, Any]) -> str:
    """A DDPJob as YAML, with a comment before each field."""
    spec = dict(document["spec"])
    (trainer,) = spec.pop("template")["spec"]["containers"]
    name = trainer.pop("name")
    return "".join(
        [
            written({key: value for key, value in document.items() if key != "spec"}),
            "spec:\n",
            *(_field(key, value, 2) for key, value in spec.items()),
            textwrap.indent(f"# {COMMENTS['template']}\ntemplate:\n  spec:\n    containers:\n", "  "),
            f"        - name: {name}\n",
            *(_field(key, value, 10) for key, value in trainer.items()),
        ]
    )


def _field(key: str, value: Any, indent: int) -> str:
    comment = textwrap.indent(COMMENTS[key], "# ")
    return textwrap.indent(f"{comment}\n{written({key: value})}", " " * indent)
