"""Options, file reading and printing that several subcommands share."""

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .._bundle.bundle import Bundle
from .._dependencies import require_extra
from .._errors import ExportError, InputError
from .._format import array_files
from .._format.console import print_escaped
from .._format.names import ProviderError
from .._format.parity_report import ParityReport
from .._format.providers import PROVIDERS, short_name
from .bundle_text import wrap_text
from .native_stderr import silence_native_stderr

Main = Callable[[argparse.Namespace], None]


def new_parser(
    commands: Any, name: str, main: Main, text: str, debug: str = "show the traceback of an error"
) -> argparse.ArgumentParser:
    """Add a subcommand that runs `main`, with `text` as its help and `debug` as the help of `--debug`."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--debug", action="store_true", help=debug)
    parser.set_defaults(command_main=main)
    return parser


def add_provider(parser: argparse.ArgumentParser) -> None:
    """Add `--provider`, which accepts a short name or a name of onnxruntime."""
    text = f"execution provider: {', '.join(PROVIDERS)}, or its name in onnxruntime (default cpu)"
    parser.add_argument("--provider", metavar="P", type=_parse_provider, default="cpu", help=text)


def _parse_provider(text: str) -> str:
    try:
        return short_name(text)
    except ProviderError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add `--import`."""
    text = "module with custom layers or models, also in the current folder, to import first; repeatable"
    parser.add_argument("--import", dest="modules", metavar="MODULE", action="append", default=[], help=text)


def import_modules(names: Sequence[str]) -> None:
    """Import modules of the user, and register their layers and models with Keras, or raise `ExportError`."""
    if not names:
        return
    with require_extra("export", "Importing layers"):
        import keras

    if "" not in sys.path and os.getcwd() not in sys.path:
        # `python -m` does this, an installed command does not.
        sys.path.insert(0, os.getcwd())
    for name, layer in _collect_layers([_import_module(name) for name in names]).items():
        keras.saving.get_custom_objects().setdefault(name, layer)


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    # A module may raise any error, or call `sys.exit`. After a signal, `main` replaces the exit code.
    except (Exception, SystemExit) as error:
        hint = f" Name the module, not its file: {name[:-3]}." if name.endswith(".py") else ""
        raise ExportError(f"Cannot import `{name}` ({type(error).__name__}: {error}).{hint}") from error


def _collect_layers(modules: Iterable[ModuleType]) -> dict[str, type]:
    """Return the layers that are defined in modules, by the registered names that `.keras` files contain."""
    import keras

    layers: dict[str, type] = {}
    for module in modules:
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, keras.layers.Layer) and item.__module__ == module.__name__:
                name = keras.saving.get_registered_name(item)
                if layers.setdefault(name, item) is not item:
                    raise ExportError(
                        f"`{layers[name].__module__}` and `{module.__name__}` both define a layer with the registered "
                        f"name `{name}`. Import only the module that the model needs, or register each layer in a "
                        "package of its own with keras.saving.register_keras_serializable, and save the model again."
                    )
    return layers


@contextlib.contextmanager
def silence_backend(arguments: argparse.Namespace) -> Iterator[None]:
    """Silence TensorFlow's start-up output in this process and its worker processes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # By default TensorFlow allocates all memory of a GPU, so that worker processes and onnxruntime would fail.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with contextlib.ExitStack() as quiet:
        if not arguments.debug:
            quiet.enter_context(silence_native_stderr())
        if arguments.json:
            # Output of the user's model would make standard output invalid JSON. `silence_native_stderr` has replaced
            # `sys.stderr` before.
            quiet.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read an `.npz` file of the user; raise `InputError` if it is missing, unreadable or of another format."""
    try:
        return array_files.read_arrays(Path(path))
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{error}. Save arrays by name: numpy.savez('X.npz', name=array).") from error


def print_verdict(report: ParityReport, provider_text: str) -> None:
    """Print the verdict, the largest differences and the warnings of a report."""
    verdict, _, largest = report.summary().partition("; ")
    print_escaped(f"{verdict} {provider_text}", largest)
    for warning in report.warnings:
        print_escaped(*wrap_text(f"warning: {warning}"))


def print_json(content: Any) -> None:
    """Print a value as JSON, in ASCII."""
    print_escaped(*json.dumps(content, indent=2, default=str).splitlines())


def print_bundle_json(bundle: Bundle) -> None:
    """Print manifest and parity report of a bundle as JSON."""
    report = json.loads(bundle.report.to_json())
    print_json({"bundle": str(bundle.path), "manifest": bundle.manifest, "report": report})
