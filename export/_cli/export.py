"""`keras-attn export MODEL.keras BUNDLE`."""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .._export.export_model import IN_STEPS_REFUSED, StaticAxisWarning, export_model
from .._format.console import join_lines, say
from .._lowering_names import LOWERINGS, count_recognised, instead
from .._options import OPSETS, PRECISIONS, Options
from .._report.write_report import default_report_path
from .bundle_text import describe
from .command_helpers import (
    add_import,
    add_json,
    add_provider,
    import_modules,
    new_parser,
    print_bundle_json,
    quiet_backend,
    read_arrays,
)

FLAGS = ("overwrite", "report", "safe_mode", "saved_model", "strict")
VALUES = ("calibration", "limit", "lowering", "opset", "precision", "provider", "static_axes", "target")


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    debug = "show the traceback of an error, and the lowering of each attention layer or why it has none"
    parser = new_parser(commands, "export", main, "export a .keras file to a bundle, and check it against Keras", debug)
    add = parser.add_argument
    add("model", metavar="MODEL.keras", help="the model, as written by model.save")
    add("bundle", metavar="BUNDLE", help="the folder to write")
    add("--samples", metavar="X.npz", help="sample inputs by name")
    add(
        "--opset",
        type=int,
        metavar="N",
        help=f"ONNX opset, {OPSETS[0]} to {OPSETS[-1]} (default: the lowest that will do)",
    )
    lowering = "how attention is written (default: adaptive, to the sizes of a request)"
    add("--lowering", type=_lowering, choices=LOWERINGS, default=Options.lowering, help=lowering)
    add("--precision", choices=PRECISIONS, default=Options.precision, help="of weights and products")
    add("--calibration", metavar="X", help="what int8 is calibrated on, by input name: X.npz, or Parquet")
    limit = "how far int8 may be from float32 there, as a share of an output's largest number"
    add("--limit", type=float, metavar="N", help=limit)
    static = "a size for an axis that would be dynamic, as batch=1; may be given several times"
    add("--static", dest="static_axes", metavar="NAME=SIZE", type=_named_size, action=_AddSize, default={}, help=static)
    unsafe = "load a model file that holds code, which can do anything"
    add("--unsafe", dest="safe_mode", action="store_false", help=unsafe)
    strict = "write nothing if the check leaves something open, which is otherwise a warning"
    add("--strict", action="store_true", help=strict)
    add("--report", action="store_true", help="write a page that shows the bundle, BUNDLE.html, beside it")
    no_saved_model = "leave the SavedModel out of the bundle"
    add("--no-saved-model", dest="saved_model", action="store_false", help=no_saved_model)
    add("--in-steps", action=_Refused, nargs=0, help=argparse.SUPPRESS)
    add("--overwrite", action="store_true", help="replace a bundle that is there")
    target = (
        "the lowest onnxruntime that the file shall run on, as 1.19; or standard: ONNX operators alone, for any runtime"
    )
    add("--target", metavar="T", help=target)
    add_import(parser)
    add_provider(parser)
    add_json(parser)


def _lowering(text: str) -> str:
    if more := instead(text):
        raise argparse.ArgumentTypeError(f"must be one of {LOWERINGS}. Received: {text!r}.{more}")
    return text


def _named_size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE with a size of 1 or more")
    return name, int(size)


class _Refused(argparse.Action):
    """Say what there is instead of an option that is no more."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(IN_STEPS_REFUSED)


class _AddSize(argparse.Action):
    """Collect sizes by name, of which each has one."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *_: Any) -> None:
        name, size = value
        sizes: dict[str, int] = getattr(namespace, self.dest)
        if sizes.get(name, size) != size:
            raise argparse.ArgumentError(self, f"{name} is both {sizes[name]} and {size}; an axis has one size")
        setattr(namespace, self.dest, {**sizes, name: size})


@contextlib.contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Yield the list of what the export warns of, to be printed at its end without a place in the code."""
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", StaticAxisWarning)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, StaticAxisWarning):
                said.append(str(message))
            else:
                shown(message, category, *place, **more)

        warnings.showwarning = show
        yield said


def main(arguments: argparse.Namespace) -> None:
    """Export, then say what was made."""
    samples = read_arrays(arguments.samples) if arguments.samples else None
    with quiet_backend(arguments), _collected_warnings() as warned:
        import_modules(arguments.modules)
        bundle = export_model(
            arguments.model,
            arguments.bundle,
            sample_inputs=samples,
            progress=False if arguments.json else None,
            **{name: getattr(arguments, name) for name in (*FLAGS, *VALUES)},
        )
    for line in warned:
        say(f"warning: {join_lines(line)}", file=sys.stderr)
    if arguments.json:
        print_bundle_json(bundle)
    else:
        say(*describe(bundle))
        if arguments.report:
            say("", f"Report: {default_report_path(bundle.path)}")
        recognised = f" {count_recognised(layers)}." if (layers := bundle.entries.layers) else ""
        say("", f"Exported to {bundle.path}: it matches Keras.{recognised}")
