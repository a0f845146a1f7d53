"""`keras-attn verify BUNDLE`."""

from __future__ import annotations

import argparse
import contextlib
import json
import textwrap
from typing import Any

from .._analysis.first_difference import Comparison, first_difference, format_layers
from .._bundle.bundle import load_bundle, verify_bundle
from .._bundle.parity import ParityError, ParityReport
from .._progress import shown_progress
from .._standalone import verify
from .describe import WIDTH
from .native_messages import hidden_native_messages
from .shared import add_json, add_provider, new_parser


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "verify", main, "replay a bundle's golden cases in onnxruntime")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to verify")
    parser.add_argument(
        "--trace", action="store_true", help="after a mismatch, name the first tensor that differs; needs TensorFlow"
    )
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Verify and print each row; where one fails, also look for the first tensor that differs if asked to."""
    try:
        report = verify_bundle(arguments.bundle, provider=arguments.provider)
    except ParityError as error:
        if not error.report.rows:
            raise
        _show(error.report, _traced(arguments, error.report) if arguments.trace else None, as_json=arguments.json)
        raise ParityError(_in_one_line(error.report, traced=arguments.trace), error.report) from error
    _show(report, None, as_json=arguments.json)
    if arguments.trace and not arguments.json:
        print("Nothing differs, so there is nothing to trace.")


def _show(report: ParityReport, found: Comparison | None, *, as_json: bool) -> None:
    if as_json:
        more = {"first_difference": found.to_dict()} if found else {}
        print(json.dumps(json.loads(report.to_json()) | more, indent=2))
        return
    print(verify.format_rows(vars(row) for row in report.rows))
    verdict, _, largest = report.summary().partition("; ")
    print(f"{verdict} on {verify.PROVIDERS[report.provider]}\n{largest}")
    for warning in report.warnings:
        print(textwrap.fill(f"warning: {warning}", WIDTH, break_long_words=False, break_on_hyphens=False))
    if found is not None:
        tensors = sum(row.tensors for row in found.layers)
        print(f"\n{tensors} tensors of model.onnx beside the SavedModel's, over {len(found.cases)} failing cases:")
        print(format_layers(found.layers, found.first))
        print(textwrap.fill(found.finding, WIDTH, break_long_words=False, break_on_hyphens=False))


def _in_one_line(report: ParityReport, *, traced: bool) -> str:
    failed = [row for row in report.rows if not row.passed]
    remedy = "Export the model again." if traced else "Add --trace to see where it begins."
    return (
        f"{len(failed)} of {len(report.rows)} outputs differ from Keras's: `{failed[0].name}` in case "
        f"`{failed[0].case}` {failed[0].problem}{', and more' if len(failed) > 1 else ''}. {remedy}"
    )


def _traced(arguments: argparse.Namespace, report: ParityReport) -> Comparison:
    failed = [row for row in report.rows if not row.passed]
    with (
        contextlib.nullcontext() if arguments.debug else hidden_native_messages(),
        shown_progress(False if arguments.json else None) as step,
    ):
        return first_difference(
            load_bundle(arguments.bundle),
            {row.case for row in failed},
            failed[0].tolerance,
            provider=arguments.provider,
            step=step,
        )
