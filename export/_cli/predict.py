"""`keras-attn predict BUNDLE SOURCE DESTINATION`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from .._batch.errors import first_errors
from .._batch.predict import ENGINES, Predictions, predict
from .._errors import ExportError
from .._standalone.verify import say
from .shared import add_json, add_provider, new_parser, print_json


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    text = "run a bundle on every row of a table in Parquet; needs keras-attn[runtime]"
    parser = new_parser(commands, "predict", main, text)
    parser.epilog = (
        "The same command goes on with a run that was ended. Rows that cannot be read or run are listed in "
        "DESTINATION/_predict/errors.parquet; the exit code is then 1."
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to run")
    parser.add_argument("source", metavar="SOURCE", help="a Parquet file, a folder of them, or a pattern in quotes")
    parser.add_argument("destination", metavar="DESTINATION", help="the folder to write, a file for each of the source")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="this machine (default), or tasks on Ray, which needs keras-attn[ray]: on the cluster of RAY_ADDRESS, "
        "without one on this machine",
    )
    parser.add_argument(
        "--batch-size", metavar="N", type=int, help="the most rows of one run of the model (default 64)"
    )
    parser.add_argument("--workers", metavar="N", type=int, help="how many runs at once (default one a core)")
    parser.add_argument("--key", metavar="NAME", help="the column that names rows in the table of errors")
    parser.add_argument("--outputs", metavar="A,B", help="the outputs to compute (default all)")
    parser.add_argument(
        "--limit-memory",
        metavar="M",
        help="how much memory the model's tensors may take in a process, such as 2G (default half of what is free); "
        "on a CPU",
    )
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether to go on with a run that DESTINATION holds (default yes; if not, it is refused)",
    )
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Run, and say what was written; where rows failed, that is an error, though all others are there."""
    try:
        done = predict(
            arguments.bundle,
            arguments.source,
            arguments.destination,
            engine=arguments.engine,
            batch_size=arguments.batch_size,
            workers=arguments.workers,
            key=arguments.key,
            provider=arguments.provider,
            outputs=None if arguments.outputs is None else arguments.outputs.split(","),
            limit_memory=arguments.limit_memory,
            resume=arguments.resume,
            progress=None if not arguments.json else False,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted: the parts that are done are in {arguments.destination}; the same command goes on from there"
        ) from None
    _show(done, as_json=arguments.json)
    if done.errors_file is not None:
        count = "1 row or part" if done.errors == 1 else f"{done.errors:,} rows or parts"
        first = "; ".join(first_errors(done.errors_file))
        raise ExportError(f"{count} failed; {done.errors_file} says which and why. The first: {first}.")


def _show(done: Predictions, *, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(done))
        return
    speed = f", {done.rows / done.seconds:,.0f} rows a second" if done.rows else ""
    say(f"{done.destination}: {done.rows:,} rows in {done.seconds:.1f} s{speed}")
    if done.resumed:
        say(f"{done.resumed:,} of {done.parts:,} parts were done before")
    if done.one_by_one:
        say("each row ran by itself: rows that were tried did not give the same beside others")
    elif done.exact_axes:
        axes = ", ".join(f"`{axis}`" for axis in done.exact_axes)
        say(f"only rows of one length ran together along {axes}: padding changes what the model gives")
