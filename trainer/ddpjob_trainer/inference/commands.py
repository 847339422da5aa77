"""The commands of `ddpjob-train` besides training: `export` and `predict`.

Both take a directory or a URL as their first argument, then flags of their own and any training flags. A checkpoint
contains the flags of its training; a training flag on the command line overrides the checkpoint's.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from ddpjob_rank.parsing import Parser

from .formats import STATE_DICT, Format

EXPORT: Final = "export"
PREDICT: Final = "predict"


def is_command(argv: Sequence[str]) -> bool:
    """Whether a command line begins with `export` or `predict`, so that nothing is trained."""
    return next(iter(argv), None) in {EXPORT, PREDICT}


def run(argv: Sequence[str]) -> None:
    """Runs the command with which a command line begins.

    Raises:
        ConfigError: A flag is wrong, or the command cannot be carried out.
        SystemExit: `--help` was asked for.
    """
    command, *rest = argv
    if command == EXPORT:
        flags, training = export_parser().parse_known_args(rest)
        # Imported only after the flags have been parsed, as below, because importing torch takes seconds.
        from .export import export  # noqa: PLC0415

        export(flags.address, flags.output, flags.format, training)
    else:
        flags, training = predict_parser().parse_known_args(rest)
        from .predict import predict  # noqa: PLC0415

        predict(flags.address, training)


def export_parser() -> argparse.ArgumentParser:
    """The arguments of `ddpjob-train export`."""
    parser = _parser(EXPORT, "Write a trained model into a file.")
    parser.add_argument(
        "--output", "-o", type=Path, required=True, help="the file to write; an existing file is replaced"
    )
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        default=STATE_DICT,
        help="state-dict: the weights by the model's own names (default); torch-export: a program for any batch size",
    )
    return parser


def predict_parser() -> argparse.ArgumentParser:
    """The arguments of `ddpjob-train predict`."""
    return _parser(PREDICT, "Print a trained model's prediction for each held-out sample.")


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"ddpjob-train {name}",
        description=description,
        usage=f"ddpjob-train {name} CHECKPOINT_DIR [--help] [FLAG ...]",
        epilog="Any training flag, such as --data-dir, overrides the one that the model was trained with.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "address",
        metavar="CHECKPOINT_DIR",
        help="training's checkpoint directory or its URL, or one checkpoint in it",
    )
    return parser
