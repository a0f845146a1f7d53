"""Read arrays from an `.npz` file that may be damaged or malicious."""

import zipfile
from pathlib import Path

import numpy as np

from .names import Arrays


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an `.npz` file by name; raise `ValueError` if the file has content other than arrays."""
    try:
        if not zipfile.is_zipfile(path):
            path.open("rb").close()  # raises if the file is missing
            raise ValueError("it is not a zip archive")
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _read_array(archive, name) for name in archive.namelist()}
    # zipfile, zlib, lzma and NumPy raise errors of many classes for damaged files.
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"{path} is not an .npz file of plain arrays: {error}") from error


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        # Unpickling an array of dtype object could run code from the file.
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        return array
