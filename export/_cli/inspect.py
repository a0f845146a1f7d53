"""`keras-attn inspect BUNDLE`."""

from __future__ import annotations

import argparse
from typing import Any

from .._errors import BundleError
from .._loaded_bundle import Bundle, load_bundle
from .._standalone import verify
from .._standalone.verify import say
from .describe import describe
from .shared import add_json, new_parser, print_bundle_json


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "inspect", main, "show a bundle's inputs, outputs, sizes, versions and parity")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to look at")
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Print what a bundle says of itself, once its files are known to be whole."""
    bundle = load_bundle(arguments.bundle)
    if arguments.json:
        print_bundle_json(bundle)
    else:
        say(*_described(bundle))


def _described(bundle: Bundle) -> list[str]:
    try:
        return describe(bundle)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # a manifest that was sealed again; what runs a bundle has been checked, and this is only shown
        file = bundle.path / verify.MANIFEST
        reason = f"{type(error).__name__}: {error}"
        raise BundleError(
            f"{file}, or the report, lacks what is to be shown or has it in another form ({reason}). Export the model "
            "again; --json shows it as it is."
        ) from error
