"""`keras-attn run BUNDLE --inputs X.npz --outputs Y.npz`."""

import argparse
import functools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .._bundle.atomic_writes import atomic_file
from .._bundle.bundle import load_bundle
from .._bundle.output_paths import (
    OverwriteCheck,
    check_output_path,
    find_file_objection,
    find_input_objection,
    find_kind_objection,
)
from .._format.case_writing import to_unicode_array
from .._format.console import print_escaped
from .._format.names import dtype_name
from .command_helpers import add_provider, new_parser, read_arrays


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "run", main, "run a bundle on arrays from a file")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to run")
    parser.add_argument("--inputs", metavar="X.npz", required=True, help="input arrays by name")
    parser.add_argument("--outputs", metavar="Y.npz", required=True, help="where to write the output arrays")
    add_provider(parser)


def main(arguments: argparse.Namespace) -> None:
    """Run a bundle, write the outputs, and print their dtypes and shapes."""
    target = Path(arguments.outputs)
    refusal = functools.partial(_find_refusal, inputs=arguments.inputs)
    check_output_path(target, refusal)
    outputs = load_bundle(arguments.bundle).run(read_arrays(arguments.inputs), provider=arguments.provider)
    write_arrays(target, outputs, refusal)
    shapes = ", ".join(f"{name} {dtype_name(array)}{list(array.shape)}" for name, array in outputs.items())
    print_escaped(f"{target}: {shapes}")


def _find_refusal(path: Path, *, inputs: str) -> str | None:
    return find_input_objection(path, inputs) or find_kind_objection(path, "file of arrays, .npz", _is_npz)


def _is_npz(content: bytes) -> bool:
    """Return True if the first file of a zip archive is an array; `.keras` files are zip archives too."""
    length = int.from_bytes(content[26:28], "little")
    return content.startswith(b"PK\3\4") and content[30 : 30 + length].endswith(b".npy")


def write_arrays(target: Path, arrays: dict[str, np.ndarray], refusal: OverwriteCheck = find_file_objection) -> None:
    """Write arrays to an `.npz` file atomically."""
    # `np.savez` takes the arrays as keyword arguments, and its first parameter has the name `file`.
    with atomic_file(target, refusal) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, to_unicode_array(array), allow_pickle=False)
