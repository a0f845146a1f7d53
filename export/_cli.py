"""The `keras-attn` command: one function a subcommand, each of which prints and returns nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import traceback
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _verify
from ._bundle import Bundle, load_bundle, verify_bundle
from ._errors import ExportError, InputError, ParityError
from ._export import export_model
from ._native_messages import hidden_native_messages
from ._options import LOWERINGS, PRECISIONS
from ._parity import ParityReport


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        Ctrl-C with 130.
    """
    arguments = _parser().parse_args(argv)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the last stop before the user, who reads one line, or all with --debug
        _print_error(error, debug=arguments.debug)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _print_error(error: Exception, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
        return
    message = " ".join(str(error).split())
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    print(f"error: {message}", file=sys.stderr)


def _terminate(*_: object) -> None:
    """Let `finally` clauses run when the process is told to end, so that no partial folder stays behind."""
    sys.unraisablehook = lambda _: None  # what was being made at this moment may complain when it is deleted half made
    raise SystemExit(128 + signal.SIGTERM)


def _export(arguments: argparse.Namespace) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for the processes that are started too
    samples = _read_arrays(arguments.samples) if arguments.samples else None
    with contextlib.nullcontext() if arguments.debug else hidden_native_messages():
        bundle = export_model(
            arguments.model,
            arguments.bundle,
            sample_inputs=samples,
            opset=arguments.opset,
            lowering=arguments.lowering,
            precision=arguments.precision,
            provider=arguments.provider,
            overwrite=arguments.overwrite,
            progress=False if arguments.json else None,
            safe_mode=not arguments.unsafe,
        )
    if arguments.json:
        _print_json({"bundle": str(bundle.path), "manifest": bundle.manifest, "report": bundle.report})
    else:
        print(f"{bundle.path}: {bundle.report.summary()}")


def _verify_bundle(arguments: argparse.Namespace) -> None:
    try:
        report = verify_bundle(arguments.bundle, provider=arguments.provider)
    except ParityError as error:
        _print_report(error.report, as_json=arguments.json)
        raise
    _print_report(report, as_json=arguments.json)


def _print_report(report: ParityReport, *, as_json: bool) -> None:
    if as_json:
        print(report.to_json())
    else:
        print(_verify.format_rows(vars(row) for row in report.rows))
        print(f"{report.summary()} on {_verify.PROVIDERS[report.provider]}")


def _run(arguments: argparse.Namespace) -> None:
    target = Path(arguments.outputs)
    if target.exists() and not target.is_file():
        raise ExportError(f"{target} is there and is not a file; it will not be replaced. Choose another place.")
    outputs = load_bundle(arguments.bundle).run(_read_arrays(arguments.inputs), provider=arguments.provider)
    try:
        _write_arrays(target, outputs)
    except OSError as error:
        raise ExportError(f"Cannot write {target}: {error.strerror}.") from error
    shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in outputs.items())
    print(f"{target}: {shapes}")


def _inspect(arguments: argparse.Namespace) -> None:
    bundle = load_bundle(arguments.bundle)
    if arguments.json:
        _print_json({"bundle": str(bundle.path), "manifest": bundle.manifest, "report": bundle.report})
    else:
        print(_description(bundle))


def _description(bundle: Bundle) -> str:
    manifest = bundle.manifest
    lines = [f"bundle     {bundle.path} ({_megabytes(bundle.path)})", f"model      {manifest['model']}"]
    for kind in ("inputs", "outputs"):
        for spec in manifest[kind]:
            lines.append(f"{kind[:-1]:10} {spec['name']}: {spec['dtype']} [{', '.join(map(str, spec['shape']))}]")
    lines += [f"layer      {each['name']}: {each['lowering']}, {each['precision']}" for each in manifest["layers"]]
    lines.append(f"opset      {manifest['opset']}, needs onnxruntime {manifest['lowest_onnxruntime']} or newer")
    lines.append("made with  " + ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()))
    lines.append(f"parity     {bundle.report.summary()}")
    return "\n".join(lines)


def _megabytes(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e6:.1f} MB"


def _read_arrays(path: str) -> dict[str, np.ndarray]:
    try:
        return _verify.read_arrays(Path(path))
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{error}. Save arrays by name: numpy.savez('X.npz', name=array).") from error


def _write_arrays(target: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an `.npz` file that appears whole or not at all; `np.savez` would not take an array called `file`."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        with zipfile.ZipFile(partial, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
        partial.replace(target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _print_json(content: dict[str, Any]) -> None:
    report = content.pop("report")
    print(json.dumps({**content, "report": json.loads(report.to_json())}, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keras-attn",
        description="Export Keras models to ONNX bundles that are proven to give the same numbers.",
        epilog="Exit codes: 0 done and matched; 1 a mismatch, or something that could not be done; 2 wrong usage.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    export = _command(commands, "export", _export, "export a .keras file to a bundle and prove that it matches")
    export.add_argument("model", metavar="MODEL.keras", help="the model, as written by model.save")
    export.add_argument("bundle", metavar="BUNDLE", help="the folder to write")
    export.add_argument("--samples", metavar="X.npz", help="sample inputs by name")
    export.add_argument("--opset", type=int, metavar="N", help="ONNX opset, 18 to 24 (default 18)")
    export.add_argument("--lowering", choices=LOWERINGS, default="portable", help="how attention is written")
    export.add_argument("--precision", choices=PRECISIONS, default="float32")
    export.add_argument(
        "--unsafe", action="store_true", help="load a model file that holds code, which can do anything"
    )
    export.add_argument("--overwrite", action="store_true", help="replace a bundle that is there")
    _provider_and_json(export)

    verify = _command(commands, "verify", _verify_bundle, "replay a bundle's golden cases in onnxruntime")
    verify.add_argument("bundle", metavar="BUNDLE")
    _provider_and_json(verify)

    run = _command(commands, "run", _run, "run a bundle on arrays from a file")
    run.add_argument("bundle", metavar="BUNDLE")
    run.add_argument("--inputs", metavar="X.npz", required=True, help="input arrays by name")
    run.add_argument("--outputs", metavar="Y.npz", required=True, help="where to write the output arrays")
    _provider(run)

    inspect = _command(commands, "inspect", _inspect, "show a bundle's inputs, outputs, versions and parity")
    inspect.add_argument("bundle", metavar="BUNDLE")
    _json(inspect)
    return parser


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=run)
    return parser


def _provider_and_json(parser: argparse.ArgumentParser) -> None:
    _provider(parser)
    _json(parser)


def _provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", choices=sorted(_verify.PROVIDERS), default="cpu", help="where ONNX runs")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
