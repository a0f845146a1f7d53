"""`keras-attn export MODEL.keras BUNDLE`."""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .._export.export_model import IN_STEPS_MESSAGE, StaticAxisWarning, export_model
from .._format.console import join_lines, print_escaped
from .._lowering_names import LOWERINGS, count_recognised, removed_lowering_hint
from .._options import OPSETS, PRECISIONS, Options
from .._report.write_report import default_report_path
from .bundle_text import describe_bundle
from .command_helpers import (
    add_import,
    add_json,
    add_provider,
    import_modules,
    new_parser,
    print_bundle_json,
    read_arrays,
    silence_backend,
)

FLAGS = ("overwrite", "report", "safe_mode", "saved_model", "strict")
VALUES = ("calibration", "limit", "lowering", "opset", "precision", "provider", "static_axes", "target")


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    debug = "show the traceback of an error, and the lowering of each attention layer or why it has none"
    parser = new_parser(commands, "export", main, "export a .keras file to a bundle, and check it against Keras", debug)
    add = parser.add_argument
    add("model", metavar="MODEL.keras", help="the model, a file written by model.save")
    add("bundle", metavar="BUNDLE", help="the folder to write")
    add("--samples", metavar="X.npz", help="sample inputs by name")
    opset = f"ONNX opset, {OPSETS[0]} to {OPSETS[-1]} (default: the lowest that the model can use)"
    add("--opset", type=int, metavar="N", help=opset)
    lowering = "form of attention in the file (default: adaptive, selected by the sizes at run time)"
    add("--lowering", type=_parse_lowering, choices=LOWERINGS, default=Options.lowering, help=lowering)
    precision = "precision of weights and matrix products (default float32)"
    add("--precision", choices=PRECISIONS, default=Options.precision, help=precision)
    add("--calibration", metavar="X", help="calibration data of int8 by input name: X.npz, or Parquet")
    limit = "largest error of int8 on the calibration data, as a share of an output's largest magnitude"
    add("--limit", type=float, metavar="N", help=limit)
    static = "static size of a dynamic axis, such as batch=1; repeatable"
    add("--static", dest="static_axes", metavar="NAME=SIZE", type=_parse_size, action=_AddSize, default={}, help=static)
    unsafe = "load a model file that contains code, which can do anything"
    add("--unsafe", dest="safe_mode", action="store_false", help=unsafe)
    add("--strict", action="store_true", help="write nothing if the check has warnings, except about speed")
    add("--report", action="store_true", help="also write a report page, BUNDLE.html, next to the bundle")
    no_saved_model = "leave the SavedModel out of the bundle"
    add("--no-saved-model", dest="saved_model", action="store_false", help=no_saved_model)
    add("--in-steps", action=_RemovedOption, nargs=0, help=argparse.SUPPRESS)
    add("--overwrite", action="store_true", help="replace an existing bundle")
    target = "lowest onnxruntime release that must run the file, such as 1.19; or standard: only ONNX operators"
    add("--target", metavar="T", help=target)
    add_import(parser)
    add_provider(parser)
    add_json(parser)


def _parse_lowering(text: str) -> str:
    if hint := removed_lowering_hint(text):
        raise argparse.ArgumentTypeError(f"must be one of {LOWERINGS}. Received: {text!r}.{hint}")
    return text


def _parse_size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE with a size of 1 or more")
    return name, int(size)


class _RemovedOption(argparse.Action):
    """Action of a removed option: fail with its replacement."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(IN_STEPS_MESSAGE)


class _AddSize(argparse.Action):
    """Action that collects static sizes by axis, and refuses two sizes of one axis."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *_: Any) -> None:
        name, size = value
        sizes: dict[str, int] = getattr(namespace, self.dest)
        if sizes.get(name, size) != size:
            raise argparse.ArgumentError(self, f"{name} is both {sizes[name]} and {size}; an axis has one size")
        setattr(namespace, self.dest, {**sizes, name: size})


@contextlib.contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Collect warnings about static axes in a list, to be printed at the end without a position in the code."""
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", StaticAxisWarning)
        default_show = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *location: Any, **options: Any) -> None:
            if issubclass(category, StaticAxisWarning):
                messages.append(str(message))
            else:
                default_show(message, category, *location, **options)

        warnings.showwarning = show
        yield messages


def main(arguments: argparse.Namespace) -> None:
    """Export a model and print a description of the bundle."""
    samples = read_arrays(arguments.samples) if arguments.samples else None
    with silence_backend(arguments), _collect_warnings() as messages:
        import_modules(arguments.modules)
        bundle = export_model(
            arguments.model,
            arguments.bundle,
            sample_inputs=samples,
            progress=False if arguments.json else None,
            **{name: getattr(arguments, name) for name in (*FLAGS, *VALUES)},
        )
    for line in messages:
        print_escaped(f"warning: {join_lines(line)}", file=sys.stderr)
    if arguments.json:
        print_bundle_json(bundle)
    else:
        print_escaped(*describe_bundle(bundle))
        if arguments.report:
            print_escaped("", f"Report: {default_report_path(bundle.path)}")
        recognised = f" {count_recognised(layers)}." if (layers := bundle.entries.layers) else ""
        print_escaped("", f"Exported to {bundle.path}: it matches Keras.{recognised}")
