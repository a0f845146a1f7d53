"""File names, golden cases, dtypes and errors."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

SCHEMA_VERSION = 3
MANIFEST = "manifest.json"
MODEL = "model.onnx"
CASES_FILE = "parity/cases.npz"
DIGEST = "manifest_sha256"  # entry of the manifest: SHA-256 of the entries before it
STRING = "string"  # dtype name of strings: NumPy's `object` in memory, `U` in .npz files

Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
    """Golden case: inputs, outputs of Keras, and rounding limits of each output, measured in perturbed runs.

    The limit of a float is the allowed difference; of an integer or boolean, True if a perturbed run changed it.
    """

    name: str
    inputs: Arrays
    outputs: Arrays
    rounding_limits: Mapping[str, np.ndarray] = MappingProxyType({})


class ExportError(Exception):
    """Base class of all errors about exports and bundles."""


class BundleError(ExportError):
    """Error of a bundle that is missing, incomplete or altered, or has an unknown schema version."""


class ProviderError(ExportError):
    """Error of an execution provider that is missing, or did not run the model."""


def dtype_name(array: np.ndarray) -> str:
    """Return the dtype name that manifests use for an array."""
    return STRING if array.dtype == object else str(array.dtype)


def first_line(message: object) -> str:
    """Return the first line of a text or an exception's message; the class name if the exception has no message."""
    line = str(message).strip().partition("\n")[0]
    return line if line or isinstance(message, str) else type(message).__name__
