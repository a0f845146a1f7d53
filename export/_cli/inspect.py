"""`keras-attn inspect BUNDLE`."""

import argparse
from typing import Any

from .._bundle.bundle import load_bundle
from .._format.console import print_escaped
from .bundle_text import describe_bundle
from .command_helpers import add_json, new_parser, print_bundle_json


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "inspect", main, "show a bundle's inputs, outputs, sizes, versions and parity")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to look at")
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Check the files of a bundle and print its description."""
    bundle = load_bundle(arguments.bundle)
    if arguments.json:
        print_bundle_json(bundle)
    else:
        print_escaped(*describe_bundle(bundle))
