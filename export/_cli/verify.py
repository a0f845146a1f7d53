"""`keras-attn verify BUNDLE`."""

import argparse
import contextlib
import json
from typing import Any

from .._bundle.bundle import load_bundle
from .._bundle.first_difference import DivergenceReport, first_difference, format_layers
from .._bundle.verify_bundle import SAMPLES, SAMPLES_AGAIN, verify_bundle
from .._errors import ExportError, InputError
from .._format.console import say
from .._format.parity_report import ParityError, ParityReport
from .._format.printing import format_rows
from .._format.providers import provider_of
from .._progress import shown_progress
from .bundle_text import wrapped
from .command_helpers import (
    add_import,
    add_json,
    add_provider,
    import_modules,
    new_parser,
    print_json,
    print_verdict,
    quiet_backend,
    read_arrays,
)


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "verify", main, "replay a bundle's golden cases in onnxruntime")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to verify")
    parser.add_argument(
        "--trace",
        action="store_true",
        help="after a mismatch, name the first tensor that differs; needs TensorFlow, and runs the bundle's "
        "SavedModel, which is code of whoever made it",
    )
    parser.add_argument("--samples", metavar="X.npz", help="arrays by input name, to be compared too; needs --model")
    parser.add_argument("--model", metavar="M.keras", help="what was exported: Keras runs it on the samples")
    parser.add_argument("--unsafe", action="store_true", help="load an M.keras that holds code, which can do anything")
    add_import(parser)
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Verify and print each row; where one fails, also look for the first tensor that differs if asked to."""
    try:
        report = _report(arguments)
    except ParityError as error:
        if not error.report.rows:
            raise
        failed = {row.case for row in error.report.rows if not row.passed}
        golden = failed - ({SAMPLES, SAMPLES_AGAIN} if arguments.samples else set())  # nothing else can be traced
        comparison, problem = None, ""
        try:
            comparison = _traced(arguments, error.report, golden) if arguments.trace and golden else None
        except ExportError as why:  # no SavedModel or no TensorFlow: the table does not need it
            problem = str(why)
        _show(error.report, comparison, as_json=arguments.json)
        raise ParityError(_in_one_line(error.report, arguments, golden, problem), error.report) from error
    _show(report, None, as_json=arguments.json)
    if arguments.trace and not arguments.json:
        say("Nothing differs, so there is nothing to trace.")


def _report(arguments: argparse.Namespace) -> ParityReport:
    _refuse_without_model(arguments)
    samples = None if arguments.samples is None else read_arrays(arguments.samples)
    needs_keras = samples is not None or arguments.model is not None
    with quiet_backend(arguments) if needs_keras else contextlib.nullcontext():
        if needs_keras:
            import_modules(arguments.modules)
        return verify_bundle(
            arguments.bundle,
            provider=arguments.provider,
            samples=samples,
            model=arguments.model,
            safe_mode=not arguments.unsafe,
        )


def _refuse_without_model(arguments: argparse.Namespace) -> None:
    given = {"--import": arguments.modules, "--unsafe": arguments.unsafe}
    if arguments.model is None and (idle := [option for option, value in given.items() if value]):
        raise InputError(f"`{idle[0]}` needs `--model`: it is for the file of a model, and a bundle holds none.")


def _show(report: ParityReport, found: DivergenceReport | None, *, as_json: bool) -> None:
    if as_json:
        more = {"first_difference": found.to_dict()} if found else {}
        print_json(json.loads(report.to_json()) | more)
        return
    say(*format_rows(vars(row) for row in report.rows))
    print_verdict(report, f"on {provider_of(report.provider).name}")
    if found is not None:
        tensors = sum(row.tensors for row in found.layers)
        say("", f"{tensors} tensors of model.onnx beside the SavedModel's, over {len(found.cases)} failing cases:")
        say(*format_layers(found.layers, found.first), *wrapped(found.finding))


def _in_one_line(report: ParityReport, arguments: argparse.Namespace, golden: set[str], problem: str) -> str:
    failed = [row for row in report.rows if not row.passed]
    if not golden:
        remedy = f"All golden cases match: is {arguments.model} the model that was exported?"
    else:
        remedy = problem or "Export the model again." if arguments.trace else "Add --trace to see where it begins."
    return (
        f"{len(failed)} of {len(report.rows)} outputs differ from Keras's: `{failed[0].name}` in case "
        f"`{failed[0].case}` {failed[0].problem}{', and more' if len(failed) > 1 else ''}. {remedy}"
    )


def _traced(arguments: argparse.Namespace, report: ParityReport, golden: set[str]) -> DivergenceReport:
    tolerance = report.rows[0].tolerance  # that of the bundle, as of all rows
    with quiet_backend(arguments), shown_progress(False if arguments.json else None) as step:
        return first_difference(
            load_bundle(arguments.bundle), golden, tolerance, provider=arguments.provider, step=step
        )
