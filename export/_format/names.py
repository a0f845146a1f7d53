"""Names that the package shares with the script in a bundle: files, golden cases, dtypes, errors."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

SCHEMA_VERSION = 3
MANIFEST = "manifest.json"
MODEL = "model.onnx"
CASES = "parity/cases.npz"
DIGEST = "manifest_sha256"  # entry of the manifest: SHA-256 of the entries before it
STRING = "string"  # dtype in manifests: objects of type `str` in memory, NumPy's dtype `U` in files

Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
    """Golden case: inputs, outputs of Keras, and rounding limits of each output.

    The limit of a float is an absolute error; of an integer or boolean, True if rounding can change the element.
    """

    name: str
    inputs: Arrays
    outputs: Arrays
    rounding: Mapping[str, np.ndarray] = MappingProxyType({})


class ExportError(Exception):
    """Base class of all errors about exports and bundles."""


class BundleError(ExportError):
    """A bundle is missing, incomplete or altered, or has an unknown schema version."""


class ProviderError(ExportError):
    """An execution provider is missing, or did not run the model."""


def dtype_name(array: np.ndarray) -> str:
    """Return the dtype of an array as manifests write it."""
    return STRING if array.dtype == object else str(array.dtype)


def first_line(message: object) -> str:
    """Return the first line of an error or text; the class name of an error without text."""
    line = str(message).strip().partition("\n")[0]
    return line if line or isinstance(message, str) else type(message).__name__
