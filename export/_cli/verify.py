"""`keras-attn verify BUNDLE`."""

import argparse
import contextlib
import json
from typing import Any

from .._bundle.bundle import load_bundle
from .._bundle.first_difference import DivergenceReport, find_first_difference, format_layers
from .._bundle.verify_bundle import SAMPLES_CASE, SECOND_SAMPLES_CASE, verify_bundle
from .._errors import ExportError, InputError
from .._format.console import print_escaped
from .._format.parity_report import ParityError, ParityReport
from .._format.printing import format_rows
from .._format.providers import provider_of
from .._progress import progress_display
from .bundle_text import wrap_text
from .command_helpers import (
    add_import,
    add_json,
    add_provider,
    import_modules,
    new_parser,
    print_json,
    print_verdict,
    read_arrays,
    silence_backend,
)


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "verify", main, "replay a bundle's golden cases in onnxruntime")
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the folder to verify")
    trace = "after a mismatch, find the first tensor that differs; needs TensorFlow, and runs code of the SavedModel"
    add("--trace", action="store_true", help=trace)
    add("--samples", metavar="X.npz", help="more arrays to compare, by input name; needs --model")
    add("--model", metavar="M.keras", help="the exported model, which Keras runs on the samples")
    add("--unsafe", action="store_true", help="load an M.keras that contains code, which can do anything")
    add_import(parser)
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Verify a bundle and print the comparisons; with `--trace`, find the first tensor that differs."""
    try:
        report = _verify(arguments)
    except ParityError as error:
        if not error.report.rows:
            raise
        failed = {row.case for row in error.report.rows if not row.passed}
        golden = failed - (
            {SAMPLES_CASE, SECOND_SAMPLES_CASE} if arguments.samples else set()
        )  # only golden cases can be traced
        comparison, problem = None, ""
        try:
            comparison = _trace(arguments, error.report, golden) if arguments.trace and golden else None
        # Without a SavedModel or TensorFlow, the table is still printed.
        except ExportError as reason:
            problem = str(reason)
        _print_report(error.report, comparison, as_json=arguments.json)
        raise ParityError(_summarize_failures(error.report, arguments, golden, problem), error.report) from error
    _print_report(report, None, as_json=arguments.json)
    if arguments.trace and not arguments.json:
        print_escaped("Nothing differs, so there is nothing to trace.")


def _verify(arguments: argparse.Namespace) -> ParityReport:
    _check_model_options(arguments)
    samples = None if arguments.samples is None else read_arrays(arguments.samples)
    needs_keras = samples is not None or arguments.model is not None
    with silence_backend(arguments) if needs_keras else contextlib.nullcontext():
        if needs_keras:
            import_modules(arguments.modules)
        return verify_bundle(
            arguments.bundle,
            provider=arguments.provider,
            samples=samples,
            model=arguments.model,
            safe_mode=not arguments.unsafe,
        )


def _check_model_options(arguments: argparse.Namespace) -> None:
    options = {"--import": arguments.modules, "--unsafe": arguments.unsafe}
    if arguments.model is None and (unused := [option for option, value in options.items() if value]):
        raise InputError(f"`{unused[0]}` needs `--model`: it applies to a Keras model file, and a bundle has none.")


def _print_report(report: ParityReport, divergence: DivergenceReport | None, *, as_json: bool) -> None:
    if as_json:
        extra_entries = {"first_difference": divergence.to_dict()} if divergence else {}
        print_json(json.loads(report.to_json()) | extra_entries)
        return
    print_escaped(*format_rows(vars(row) for row in report.rows))
    print_verdict(report, f"on {provider_of(report.provider).name}")
    if divergence is not None:
        tensors = sum(row.tensors for row in divergence.layers)
        count = len(divergence.cases)
        print_escaped("", f"{tensors} tensors of model.onnx and the SavedModel, over {count} failing cases:")
        print_escaped(*format_layers(divergence.layers, divergence.first), *wrap_text(divergence.finding))


def _summarize_failures(report: ParityReport, arguments: argparse.Namespace, golden: set[str], problem: str) -> str:
    failed = [row for row in report.rows if not row.passed]
    if not golden:
        remedy = f"All golden cases match: is {arguments.model} the model that was exported?"
    else:
        remedy = problem or "Export the model again." if arguments.trace else "Add --trace to find where it begins."
    return (
        f"{len(failed)} of {len(report.rows)} outputs differ from Keras's: `{failed[0].name}` in case "
        f"`{failed[0].case}` {failed[0].problem}{', and more' if len(failed) > 1 else ''}. {remedy}"
    )


def _trace(arguments: argparse.Namespace, report: ParityReport, golden: set[str]) -> DivergenceReport:
    tolerance = report.rows[0].tolerance  # all rows have the tolerance of the bundle
    with silence_backend(arguments), progress_display(False if arguments.json else None) as step:
        return find_first_difference(
            load_bundle(arguments.bundle), golden, tolerance, provider=arguments.provider, on_step=step
        )
