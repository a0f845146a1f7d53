"""What several subcommands share: common options, reading `.npz` files, printing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._bundle.bundle import Bundle
from .._errors import InputError
from .._standalone import verify


def new_parser(
    commands: Any, name: str, main: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    """Add a subcommand that `main` carries out."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=main)
    return parser


def add_provider(parser: argparse.ArgumentParser) -> None:
    """Add `--provider`."""
    parser.add_argument(
        "--provider", choices=sorted(verify.PROVIDERS), default="cpu", help="where ONNX runs (default cpu)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read an `.npz` file that a user names.

    Raises:
        InputError: It is missing, cannot be read, or holds something else.
    """
    try:
        return verify.read_arrays(Path(path))
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{error}. Save arrays by name: numpy.savez('X.npz', name=array).") from error


def print_bundle_json(bundle: Bundle) -> None:
    """Print all that a bundle says of itself."""
    report = json.loads(bundle.report.to_json())
    print(json.dumps({"bundle": str(bundle.path), "manifest": bundle.manifest, "report": report}, indent=2))
