"""`keras-attn report BUNDLE`."""

import argparse
import json
from pathlib import Path
from typing import Any

from .._bundle.bundle import load_bundle
from .._errors import InputError
from .._format.console import print_escaped
from .command_helpers import add_provider, new_parser, read_arrays


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    text = "write a page that shows a bundle: examples with predictions and attention, and its comparison with Keras"
    parser = new_parser(commands, "report", main, text)
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the folder to show")
    add("--output", metavar="PAGE.html", help="the file to write (default BUNDLE.html, next to the bundle)")
    add("--inputs", metavar="X.npz", help="input arrays by name, whose predictions are shown")
    add_provider(parser)
    labels = "labels of ids and classes: an object of lists of strings, or strings of characters, by input or output"
    add("--labels", metavar="LABELS.json", help=labels)
    live = (
        "include the model and onnxruntime-web (npm install --ignore-scripts onnxruntime-web, in this folder or "
        "above): the page replays the golden cases in the reader's browser and runs the model"
    )
    add("--live", action="store_true", help=live)


def main(arguments: argparse.Namespace) -> None:
    """Write the report page and print its path and size."""
    bundle = load_bundle(arguments.bundle)
    inputs = None if arguments.inputs is None else read_arrays(arguments.inputs)
    labels = None if arguments.labels is None else _read_labels(Path(arguments.labels))
    page = bundle.write_report(
        arguments.output, inputs=inputs, labels=labels, live=arguments.live, provider=arguments.provider
    )
    print_escaped(f"{page}: {page.stat().st_size / 1e3:,.0f} kB")


def _read_labels(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON in UTF-8: {error}.") from error
