"""`keras-attn run BUNDLE --inputs X.npz --outputs Y.npz`."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .._loaded_bundle import load_bundle
from .._places import check_place, unless_a_file
from .._whole_file import whole_file
from .shared import add_provider, new_parser, read_arrays


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "run", main, "run a bundle on arrays from a file")
    parser.add_argument("bundle", metavar="BUNDLE", help="the folder to run")
    parser.add_argument("--inputs", metavar="X.npz", required=True, help="input arrays by name")
    parser.add_argument("--outputs", metavar="Y.npz", required=True, help="where to write the output arrays")
    add_provider(parser)


def main(arguments: argparse.Namespace) -> None:
    """Run, write the outputs, and say what they are."""
    target = Path(arguments.outputs)
    check_place(target, unless_a_file)
    outputs = load_bundle(arguments.bundle).run(read_arrays(arguments.inputs), provider=arguments.provider)
    write_arrays(target, outputs)
    shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in outputs.items())
    print(f"{target}: {shapes}")


def write_arrays(target: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an `.npz` file that appears whole or not at all; `np.savez` would not take an array called `file`."""
    with whole_file(target) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
