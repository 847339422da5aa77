"""What `--help` shows besides arguments: all commands, grouped by where they work, and examples for each command."""

import argparse
from collections.abc import Mapping

PLACES = {
    "on this machine": ("run", "init", "validate", "ls", "report", "export", "stop", "rm", "prune"),
    "on a cluster": ("submit", "hold", "suspend", "resume", "scale", "debug", "cancel"),
    "on this machine and on a cluster": (
        *("top", "dashboard", "status", "describe", "logs", "checkpoint", "delete"),
    ),
    "of this command": ("completion", "version"),
}

EXAMPLES = {
    "run": ("train.py --procs-per-node 2 -- --lr 0.1", "--resume train --detach"),
    "init": ("train.py --procs-per-node 2", "-m package.train --output job.yaml"),
    "validate": ("job.yaml", "train.yaml evaluate.yaml"),
    "submit": ("train.py --nodes 2 --gpus-per-node 8 -- --lr 0.1", "job.yaml --wait"),
    "hold": ("dev --nodes 2 --gpus-per-node 8", "dev --nodes 2 --idle-timeout 2h --queue team-a"),
    "status": ("train", "--namespace team --watch"),
    "describe": ("train", "train --namespace team"),
    "logs": ("train --tail 20", "train --namespace team --follow"),
    "checkpoint": ("train", "train train-2 --namespace team --wait=false"),
    "report": ("train", "checkpoints --output train.html"),
    "export": (
        "checkpoints --output model.safetensors",
        "checkpoints/step-00000120 -o average.safetensors --thing ema",
    ),
    "ls": ("", "--state Running -o wide"),
    "top": ("", "--once --all-namespaces"),
    "dashboard": ("", "--history history --port 8000 --no-open"),
    "prune": ("--history s3://bucket/history --keep 10", "team/train --history history --older-than 30d --dry-run"),
    "stop": ("train", "train train-2"),
    "rm": ("train", "train train-2"),
    "suspend": ("train", "train --namespace team"),
    "resume": ("train", "train --namespace team"),
    "scale": ("train --nodes 4", "train --nodes 4 --namespace team"),
    "debug": ("train --rank 3", "train --rank 3 -- nvidia-smi"),
    "cancel": ("train", "train train-2 --namespace team"),
    "delete": ("train", "train train-2 --namespace team --wait=false"),
    "version": ("", "--client"),
}
"""For each command, two examples of its arguments. The help of `completion` has examples of its own."""


class Formatter(argparse.HelpFormatter):
    """Wraps paragraphs, but leaves indented lines unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        return "\n".join(
            line if line.startswith(" ") else super(Formatter, self)._fill_text(line, width, indent) for line in lines
        )


class Overview(Formatter):
    """Leaves out argparse's list of commands, because the description lists them in groups."""

    def add_argument(self, action: argparse.Action) -> None:
        """Adds an option."""
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  argparse has no public name for it.
            super().add_argument(action)


def overview(meanings: Mapping[str, str]) -> str:
    """The commands with their meanings, grouped by the place where they work."""
    width = max(map(len, meanings))
    return "\n\n".join(
        "\n".join([f"{place}:", *(f"  {name:<{width}}  {meanings[name]}" for name in names)])
        for place, names in PLACES.items()
    )


def examples(command: str) -> str:
    """The examples of a command, formatted as its epilog."""
    return "\n".join(["examples:", *(f"  %(prog)s {words}".rstrip() for words in EXAMPLES[command])])
