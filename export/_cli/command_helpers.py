"""What several subcommands share: common options, reading `.npz` files, printing."""

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
from .._dependencies import needing
from .._errors import ExportError, InputError
from .._format import array_files
from .._format.console import say
from .._format.names import ProviderError
from .._format.parity_report import ParityReport
from .._format.providers import PROVIDERS, short_name
from .bundle_text import wrapped
from .native_stderr import hidden_native_messages


def new_parser(
    commands: Any,
    name: str,
    main: Callable[[argparse.Namespace], None],
    text: str,
    debug: str = "show the traceback of an error",
) -> argparse.ArgumentParser:
    """Add a subcommand that `main` carries out."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--debug", action="store_true", help=debug)
    parser.set_defaults(run=main)
    return parser


def add_provider(parser: argparse.ArgumentParser) -> None:
    """Add `--provider`, which takes either name of a provider."""
    about = f"where onnxruntime computes: {', '.join(PROVIDERS)}, or onnxruntime's name of it (default cpu)"
    parser.add_argument("--provider", metavar="P", type=_provider, default="cpu", help=about)


def _provider(text: str) -> str:
    try:
        return short_name(text)
    except ProviderError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add `--import`."""
    parser.add_argument(
        "--import",
        dest="modules",
        metavar="MODULE",
        action="append",
        default=[],
        help="import a module first, also from the current folder: its layers and models are then known (repeatable)",
    )


def import_modules(names: Sequence[str]) -> None:
    """Import modules of the user's, and let Keras know the layers and models in them by their names.

    Those that are registered are known by being imported; for the others their names have to do.

    Raises:
        ExportError: One cannot be imported, or two hold layers that a file does not tell apart.
    """
    if not names:
        return
    with needing("export", "Importing layers"):
        import keras

    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it, and an installed command has not
    for name, layer in _layers_by_name([_imported(name) for name in names]).items():
        keras.saving.get_custom_objects().setdefault(name, layer)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # whatever the user's module does when it is imported, such as `sys.exit` in a script; where a signal has raised
        # the SystemExit, `main` knows and ends as it asks
        hint = f" Name the module, not its file: {name[:-3]}." if name.endswith(".py") else ""
        raise ExportError(f"Cannot import `{name}` ({type(error).__name__}: {error}).{hint}") from error


def _layers_by_name(modules: Iterable[ModuleType]) -> dict[str, type]:
    """Return the layers that are defined in modules, by the names that a file has for them."""
    import keras

    found: dict[str, type] = {}
    for module in modules:
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, keras.layers.Layer) and each.__module__ == module.__name__:
                name = keras.saving.get_registered_name(each)
                if found.setdefault(name, each) is not each:
                    raise ExportError(
                        f"`{found[name].__module__}` and `{module.__name__}` both hold a layer that a file calls "
                        f"`{name}`. Import only the module that the model needs, or register each layer in a package "
                        "of its own with keras.saving.register_keras_serializable, and save the model again."
                    )
    return found


@contextlib.contextmanager
def quiet_backend(arguments: argparse.Namespace) -> Iterator[None]:
    """Keep from the terminal what TensorFlow prints when it starts, here and in processes that are started.

    Of a GPU's memory each then takes what it needs, and leaves the rest to the others and to onnxruntime. With
    `--json`, what a model or a module of the user's prints goes to standard error; only JSON is to be read.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with contextlib.ExitStack() as quiet:
        if not arguments.debug:
            quiet.enter_context(hidden_native_messages())
        if arguments.json:
            quiet.enter_context(contextlib.redirect_stdout(sys.stderr))  # after what replaces `sys.stderr`
        yield


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read an `.npz` file that a user names.

    Raises:
        InputError: It is missing, cannot be read, or holds something else.
    """
    try:
        return array_files.read_arrays(Path(path))
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{error}. Save arrays by name: numpy.savez('X.npz', name=array).") from error


def print_verdict(report: ParityReport, where: str) -> None:
    """Print what came of a comparison, and what it leaves open."""
    verdict, _, largest = report.summary().partition("; ")
    say(f"{verdict} {where}", largest)
    for warning in report.warnings:
        say(*wrapped(f"warning: {warning}"))


def print_json(content: Any) -> None:
    """Print JSON, in ASCII."""
    say(*json.dumps(content, indent=2, default=str).splitlines())


def print_bundle_json(bundle: Bundle) -> None:
    """Print all that a bundle says of itself."""
    report = json.loads(bundle.report.to_json())
    print_json({"bundle": str(bundle.path), "manifest": bundle.manifest, "report": report})
