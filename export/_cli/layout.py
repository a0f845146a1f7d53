"""`keras-attn layout BUNDLE FOLDER --target triton|tfserving|mlserver`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from .._report.encoding import bytes_text
from .._serving.layout import TARGETS, write_layout
from .._standalone.verify import say
from .shared import add_json, add_provider, new_parser, print_json


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    text = "write the folder that a server reads, and the command that starts the server"
    parser = new_parser(commands, "layout", main, text)
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to serve")
    parser.add_argument("folder", metavar="FOLDER", help="the server's folder of models, in which the model's is made")
    parser.add_argument("--target", choices=TARGETS, required=True, help="the server")
    parser.add_argument("--name", metavar="NAME", help="what the model is called there (default: as in the manifest)")
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Write it, and say how the server is started."""
    made = write_layout(
        arguments.bundle, arguments.folder, target=arguments.target, name=arguments.name, provider=arguments.provider
    )
    size = sum((made.folder / name).stat().st_size for name in made.files)
    if arguments.json:
        told = {name: value for name, value in asdict(made).items() if name != "server"}
        print_json({**told, "bytes": size})
        return
    count = f"{len(made.files)} file{'s' if len(made.files) > 1 else ''}"
    say(f"{made.folder}: for {made.server}, {count}, {bytes_text(size)}", *made.notes)
    say("start it with:", made.command)
