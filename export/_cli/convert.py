"""`keras-attn convert BUNDLE OUT --to litert`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .._bundle.parity import ParityError
from .._export.convert_bundle import TARGETS, convert_bundle
from .._report.encoding import bytes_text
from .._standalone.verify import say
from .shared import add_json, new_parser, print_verdict, quiet_backend


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    text = "convert a bundle's SavedModel to a LiteRT file that matches Keras; needs keras-attn[litert]"
    parser = new_parser(commands, "convert", main, text)
    parser.epilog = "TensorFlow loads the SavedModel, which is code of whoever made the bundle."
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to convert; of precision float32")
    parser.add_argument("out", metavar="OUT", help="the file to write, such as model.tflite")
    parser.add_argument("--to", choices=TARGETS, required=True, help="what to convert to")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Convert, and say what was made; where something differs nothing was, and only JSON shows all rows."""
    try:
        with quiet_backend(arguments):
            report = convert_bundle(arguments.bundle, arguments.out, to=arguments.to, overwrite=arguments.overwrite)
    except ParityError as error:
        if arguments.json:
            say(*error.report.to_json().splitlines())
        raise
    if arguments.json:
        say(*report.to_json().splitlines())
        return
    say(f"{arguments.out}: {bytes_text(Path(arguments.out).stat().st_size)}")
    print_verdict(report, "in LiteRT")
