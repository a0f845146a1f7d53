"""Manifest of a bundle: its fields, their schema, and reading it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from . import files
from .dtypes import DTYPES
from .files import read_manifest_file
from .names import CASES_FILE, MANIFEST, MODEL, SCHEMA_VERSION, BundleError

SERVING_SIGNATURE = "serving_default"  # the signature of a SavedModel, by TensorFlow's default name


@dataclass(frozen=True)
class Spec:
    """Input or output of a model; a string in the shape is the name of a dynamic axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Spec":
        """Build a spec from its JSON object."""
        return cls(content["name"], content["dtype"], tuple(content["shape"]))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of `manifest.json`, one field for each key; docs/export.md describes them.

    Fields without a default are required. Fields with a default are missing in bundles of older releases.
    """

    schema_version: int = SCHEMA_VERSION
    model: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    counts: Mapping[str, str] = field(default_factory=dict)
    weights_of: Mapping[str, str] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)
    opset: int
    precision: str = "float32"
    layers: list[dict[str, str]]
    backend: str = "tensorflow"
    versions: Mapping[str, str]
    lowest_onnxruntime: str
    parity: Mapping[str, Any]
    sha256: Mapping[str, str]
    manifest_sha256: str = ""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Manifest":
        """Build a manifest from JSON that `validate_manifest` has accepted."""
        values = {entry.name: content[entry.name] for entry in fields(cls) if entry.name in content}
        signature = {kind: tuple(map(Spec.from_dict, content[kind])) for kind in ("inputs", "outputs")}
        return cls(**{**values, **signature})

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Inputs, then outputs."""
        return *self.inputs, *self.outputs

    @property
    def lengths(self) -> dict[str, str]:
        """Names of integer inputs that hold valid lengths, by the name of the axis."""
        length_inputs = [spec.name for spec in self.inputs if spec.name in self.counts and "int" in spec.dtype]
        return {self.counts[name]: name for name in length_inputs}


REQUIRED = [entry.name for entry in fields(Manifest) if entry.default is MISSING and entry.default_factory is MISSING]


class JsonType(NamedTuple):
    """Schema of a JSON value: a description for messages, and a test."""

    description: str
    accepts: Callable[[Any], bool]


class ListOf(NamedTuple):
    """Schema of a list: schema of the items, and minimum length."""

    schema: Any
    min_length: int = 0


class OrNull(NamedTuple):
    """Schema of a value that may be null."""

    schema: Any


def _is_integer(value: Any, minimum: int) -> bool:
    return type(value) is int and value >= minimum


def _is_number(value: Any) -> bool:
    # JSON allows integers of any length; `float` raises an OverflowError beyond 1.8e308.
    return type(value) in (int, float) and abs(value) <= 1e300


TEXT = JsonType("text", lambda value: isinstance(value, str))
NAME = JsonType("a name", lambda value: isinstance(value, str) and value != "")
BOOLEAN = JsonType("true or false", lambda value: isinstance(value, bool))
COUNT = JsonType("an integer of 0 or more", lambda value: _is_integer(value, 0))
STEP = JsonType("an integer of 1 or more", lambda value: _is_integer(value, 1))
AXIS = JsonType("a size of 0 or more or the name of an axis", lambda value: COUNT.accepts(value) or NAME.accepts(value))
NUMBER = JsonType("a finite number", _is_number)
LIMIT = JsonType("a number of 0 or more", lambda value: _is_number(value) and value >= 0)
DTYPE = JsonType(f"one of {', '.join(DTYPES)}", lambda value: isinstance(value, str) and value in DTYPES)
VERSION = JsonType(
    "a version such as 1.18", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9]+\.[0-9]+", value))
)

# A schema is a `JsonType`, a `ListOf`, an `OrNull`, or a dict of schemas by key. `key?` is optional. Unknown keys are
# allowed, since a later release may add keys. `{"*": schema}` means that all values fit the schema.
TOLERANCE = {"relative": LIMIT, "absolute": LIMIT}
_SPECS = ListOf({"name": NAME, "dtype": DTYPE, "shape": ListOf(AXIS)}, min_length=1)
_LAYER = {"name": TEXT, "class": TEXT, "lowering": TEXT, "precision": TEXT}
_ENTRIES = {
    "model": NAME,
    "inputs": _SPECS,
    "outputs": _SPECS,
    "counts?": {"*": NAME},
    "weights_of?": {"*": TEXT},
    "multiples?": {"*": STEP},
    "static?": {"*": TEXT},
    "values?": {"*": TEXT},
    "calibration?": {"rows?": COUNT, "int8_layers?": ListOf(TEXT), "float32_layers?": ListOf(TEXT)},
    "opset": COUNT,
    "precision?": TEXT,
    "layers": ListOf({**_LAYER, "form?": TEXT, "milliseconds?": ListOf({"*": NUMBER})}),
    "backend?": TEXT,
    "versions": {"*": TEXT},
    "lowest_onnxruntime": VERSION,
    "parity": {"tolerance": TOLERANCE},
    "sha256": {"*": TEXT},
}


def find_schema_error(value: Any, schema: Any, path: str = "") -> str | None:
    """Return an error text with the path of the first JSON value that does not fit a schema, or None."""
    if isinstance(schema, JsonType):
        return None if schema.accepts(value) else f"`{path}` must be {schema.description}"
    if isinstance(schema, OrNull):
        return None if value is None else find_schema_error(value, schema.schema, path)
    if isinstance(schema, ListOf):
        if not isinstance(value, list):
            return f"`{path}` must be a list"
        if len(value) < schema.min_length:
            return f"`{path}` must not be empty"
        return _find_first_error((item, schema.schema, f"{path}[{index}]") for index, item in enumerate(value))
    if not isinstance(value, dict):
        return f"`{path}` must be an object" if path else "it must be an object"
    if "*" in schema:
        return _find_first_error((item, schema["*"], f"{path}.{key}") for key, item in value.items())
    prefix = f"{path}." if path else ""
    if missing := [key for key in schema if key not in value and not key.endswith("?")]:
        return f"`{prefix}{missing[0]}` is missing"
    schemas = ((key.removesuffix("?"), item_schema) for key, item_schema in schema.items())
    return _find_first_error((value[key], item_schema, prefix + key) for key, item_schema in schemas if key in value)


def _find_first_error(values: Iterable[tuple[Any, Any, str]]) -> str | None:
    return next(filter(None, (find_schema_error(*value) for value in values)), None)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle; raise `BundleError` if an entry, a file or the onnxruntime is invalid."""
    try:
        validate_manifest(folder)
        return files.read_manifest(folder)
    except OSError as error:
        raise BundleError(f"Cannot read {error.filename or folder}: {error.strerror}.") from error


def validate_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; raise `BundleError` if it is altered, or an entry is missing or invalid."""
    path, manifest = folder / MANIFEST, read_manifest_file(folder)
    hashes = manifest.get("sha256", {})
    missing = [name for name in REQUIRED if name not in manifest]
    missing += [name for name in (MODEL, CASES_FILE) if isinstance(hashes, dict) and name not in hashes]
    if missing:
        raise BundleError(f"{path} is incomplete: it has no entry for {', '.join(missing)}.")
    if problem := find_schema_error(manifest, _ENTRIES):
        raise BundleError(f"{path} is not a bundle's manifest: {problem}. Export the model again.")
    return manifest
