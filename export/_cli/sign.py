"""`keras-attn sign BUNDLE --key K`."""

from __future__ import annotations

import argparse
from typing import Any

from .._bundle.signing import sign_bundle
from .._standalone.verify import say
from .shared import new_parser


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "sign", main, "sign a bundle with a private key; needs keras-attn[sign]")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to sign")
    parser.add_argument(
        "--key",
        metavar="K",
        required=True,
        help="a private key on the curve P-256, P-384 or P-521, an unencrypted PEM file",
    )
    parser.add_argument("--signature", metavar="FILE", help="where to write the signature (default: BUNDLE.sig)")


def main(arguments: argparse.Namespace) -> None:
    """Sign, and say where the signature is."""
    say(str(sign_bundle(arguments.bundle, key=arguments.key, signature=arguments.signature)))
