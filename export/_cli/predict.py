"""`keras-attn predict BUNDLE SOURCE DESTINATION`."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from .._batch.predict import ENGINES, predict
from .._errors import ExportError
from .._format.console import print_escaped
from .command_helpers import add_json, add_provider, new_parser, print_json

OPTIONS = ("engine", "batch_size", "workers", "key", "provider", "limit_memory", "resume")


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "predict", main, "run a bundle on every row of Parquet; needs keras-attn[runtime]")
    parser.epilog = (
        "The same command continues an interrupted run. Failed rows are in DESTINATION/_predict/errors.parquet."
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the folder to run")
    add("source", metavar="SOURCE", help="a Parquet file, a folder of them, or a pattern in quotes")
    add("destination", metavar="DESTINATION", help="the folder to write, one file for each file of the source")
    engine = "this machine (default), or Ray on the cluster of RAY_ADDRESS or this machine; needs keras-attn[ray]"
    add("--engine", choices=ENGINES, default="local", help=engine)
    add("--batch-size", metavar="N", type=int, help="largest number of rows in one run of the model (default 64)")
    add("--workers", metavar="N", type=int, help="number of concurrent runs (default one per core)")
    add("--key", metavar="NAME", help="column that identifies rows in the table of errors")
    add("--outputs", metavar="A,B", help="outputs to compute (default all)")
    limit = "memory of the model's tensors in a process, such as 2G (default half of the available memory); on a CPU"
    add("--limit-memory", metavar="M", help=limit)
    resume = "resume a run in DESTINATION (default), or refuse it"
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help=resume)
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Run a bundle on all rows and print their numbers; if rows failed, raise an error after the run."""
    options = {name: getattr(arguments, name) for name in OPTIONS}
    names = None if arguments.outputs is None else arguments.outputs.split(",")
    paths = arguments.bundle, arguments.source, arguments.destination
    try:
        result = predict(*paths, outputs=names, progress=False if arguments.json else None, **options)
    except KeyboardInterrupt:
        text = f"interrupted: {arguments.destination} holds the finished files; the same command continues the run"
        raise KeyboardInterrupt(text) from None
    if arguments.json:
        print_json(dataclasses.asdict(result))
    else:
        speed = f", {result.rows / result.seconds:,.0f} rows a second" if result.rows else ""
        print_escaped(f"{result.destination}: {result.rows:,} rows in {result.seconds:.1f} s{speed}")
        if result.resumed:
            print_escaped(f"{result.resumed:,} of {result.parts:,} files were finished before")
        if result.one_by_one:
            print_escaped("each row ran alone: other rows in the batch change outputs of the model")
        elif result.exact_axes:
            axes = ", ".join(f"`{axis}`" for axis in result.exact_axes)
            print_escaped(f"only rows of equal length share a batch along {axes}: padding changes outputs of the model")
    if result.errors_file is not None:
        error = _format_first_error(result.errors_file)
        raise ExportError(f"failed rows or files: {result.errors:,}, in {result.errors_file}; the first: {error}.")


def _format_first_error(file: Path) -> str:
    from pyarrow.parquet import read_table

    error = read_table(file).slice(0, 1).to_pylist()[0]
    row_text = "" if error["row"] is None else f", row {error['row']}"
    return f"{error['file']}{row_text}: {error['reason']:.200}"
