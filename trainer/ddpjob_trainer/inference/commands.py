"""The commands of `ddpjob-train` beside training: `export` and `predict`.

Both take a directory first, and all flags of training beside their own: a checkpoint knows with which it was trained,
and a flag that is given again wins.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from ddpjob_trainer.options.parsing import Parser

Format = Literal["state-dict", "torch-export"]
STATE_DICT: Final = "state-dict"


def command(argv: Sequence[str]) -> Callable[[], None] | None:
    """What the command line asks for, if that is not training.

    Raises:
        ConfigError: A flag is wrong.
        SystemExit: `--help` was asked for.
    """
    named = _COMMANDS.get(argv[0]) if argv else None
    return named(argv[1:]) if named else None


def export_parser() -> argparse.ArgumentParser:
    """The arguments of `ddpjob-train export`."""
    parser = _parser("export", "Write a trained model into a file.")
    parser.add_argument("--output", "-o", type=Path, required=True, help="the file; one that is there is replaced")
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        default=STATE_DICT,
        help="state-dict: the weights by the model's own names (default); torch-export: a program for any batch size",
    )
    return parser


def predict_parser() -> argparse.ArgumentParser:
    """The arguments of `ddpjob-train predict`."""
    return _parser("predict", "Print what a trained model says of each sample that was held out.")


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"ddpjob-train {name}",
        description=description,
        usage=f"ddpjob-train {name} CHECKPOINT_DIR [--help] [FLAG ...]",
        epilog="Any flag of training wins over the one that the model was trained with: --data-dir, say.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "directory", metavar="CHECKPOINT_DIR", type=Path, help="where training has saved, or one checkpoint in it"
    )
    return parser


def _export(argv: Sequence[str]) -> Callable[[], None]:
    flags, training = export_parser().parse_known_args(argv)

    def export() -> None:
        # Here, as below, since it imports torch, which takes seconds.
        from .export import export  # noqa: PLC0415

        export(flags.directory, flags.output, flags.format, training)

    return export


def _predict(argv: Sequence[str]) -> Callable[[], None]:
    flags, training = predict_parser().parse_known_args(argv)

    def predict() -> None:
        from .predict import predict  # noqa: PLC0415

        predict(flags.directory, training)

    return predict


_COMMANDS = {"export": _export, "predict": _predict}
