"""Manifest of a bundle: its fields, their schema, and reading it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from . import files
from .dtypes import DTYPES
from .files import read_manifest_file
from .names import CASES, MANIFEST, MODEL, SCHEMA_VERSION, BundleError

SERVING_SIGNATURE = "serving_default"  # the signature of a SavedModel, by TensorFlow's default name


@dataclass(frozen=True)
class Spec:
    """Input or output of a model; a string in the shape is the name of a dynamic axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Spec":
        """Return the spec for its JSON object."""
        return cls(content["name"], content["dtype"], tuple(content["shape"]))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of `manifest.json`, one field for each key; docs/export.md describes them.

    Fields without a default are required. The others are missing in bundles that older releases wrote.
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
    def of(cls, content: Mapping[str, Any]) -> "Manifest":
        """Return the manifest for JSON that has passed `checked_entries`."""
        known = {entry.name: content[entry.name] for entry in fields(cls) if entry.name in content}
        specs = {kind: tuple(map(Spec.of, content[kind])) for kind in ("inputs", "outputs")}
        return cls(**{**known, **specs})

    @property
    def specs(self) -> tuple[Spec, ...]:
        """All inputs and outputs."""
        return *self.inputs, *self.outputs

    @property
    def lengths(self) -> dict[str, str]:
        """Integer inputs that count the valid positions along an axis, by the name of the axis."""
        counting = [spec.name for spec in self.inputs if spec.name in self.counts and "int" in spec.dtype]
        return {self.counts[name]: name for name in counting}


REQUIRED = [entry.name for entry in fields(Manifest) if entry.default is MISSING and entry.default_factory is MISSING]


class Kind(NamedTuple):
    """Schema of a JSON value: a description for messages, and a test."""

    description: str
    holds: Callable[[Any], bool]


class Each(NamedTuple):
    """Schema of a list: the schema of its items, and its minimum length."""

    schema: Any
    min_length: int = 0


class OrNull(NamedTuple):
    """Schema of a value that may be null."""

    schema: Any


def _is_integer(value: Any, minimum: int) -> bool:
    return type(value) is int and value >= minimum


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e300


TEXT = Kind("text", lambda value: isinstance(value, str))
NAME = Kind("a name", lambda value: isinstance(value, str) and value != "")
BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("an integer of 0 or more", lambda value: _is_integer(value, 0))
STEP = Kind("an integer of 1 or more", lambda value: _is_integer(value, 1))
AXIS = Kind("a size of 0 or more or the name of an axis", lambda value: COUNT.holds(value) or NAME.holds(value))
NUMBER = Kind("a finite number", _is_number)
LIMIT = Kind("a number of 0 or more", lambda value: _is_number(value) and value >= 0)
DTYPE = Kind(f"one of {', '.join(DTYPES)}", lambda value: isinstance(value, str) and value in DTYPES)
VERSION = Kind(
    "a version such as 1.18", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9]+\.[0-9]+", value))
)

# A schema is a `Kind`, an `Each`, an `OrNull`, or a dict of schemas by key. `key?` is optional, and unknown keys are
# allowed. `{"*": schema}` means that all values fit the schema.
TOLERANCE = {"relative": LIMIT, "absolute": LIMIT}
_SPECS = Each({"name": NAME, "dtype": DTYPE, "shape": Each(AXIS)}, min_length=1)
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
    "calibration?": {"rows?": COUNT, "int8_layers?": Each(TEXT), "float32_layers?": Each(TEXT)},
    "opset": COUNT,
    "precision?": TEXT,
    "layers": Each({**_LAYER, "form?": TEXT, "milliseconds?": Each({"*": NUMBER})}),
    "backend?": TEXT,
    "versions": {"*": TEXT},
    "lowest_onnxruntime": VERSION,
    "parity": {"tolerance": TOLERANCE},
    "sha256": {"*": TEXT},
}


def problem_of(value: Any, schema: Any, path: str = "") -> str | None:
    """Return a message with the path of the first JSON value that does not fit a schema, or None."""
    if isinstance(schema, Kind):
        return None if schema.holds(value) else f"`{path}` must be {schema.description}"
    if isinstance(schema, OrNull):
        return None if value is None else problem_of(value, schema.schema, path)
    if isinstance(schema, Each):
        if not isinstance(value, list):
            return f"`{path}` must be a list"
        if len(value) < schema.min_length:
            return f"`{path}` must not be empty"
        return _first_problem((item, schema.schema, f"{path}[{index}]") for index, item in enumerate(value))
    if not isinstance(value, dict):
        return f"`{path}` must be an object" if path else "it must be an object"
    if "*" in schema:
        return _first_problem((item, schema["*"], f"{path}.{key}") for key, item in value.items())
    prefix = f"{path}." if path else ""
    if missing := [key for key in schema if key not in value and not key.endswith("?")]:
        return f"`{prefix}{missing[0]}` is missing"
    known = ((key.removesuffix("?"), item_schema) for key, item_schema in schema.items())
    return _first_problem((value[key], item_schema, prefix + key) for key, item_schema in known if key in value)


def _first_problem(values: Iterable[tuple[Any, Any, str]]) -> str | None:
    return next(filter(None, (problem_of(*value) for value in values)), None)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle, or raise the `BundleError` of its entries, its files, or an old onnxruntime."""
    try:
        checked_entries(folder)
        return files.read_manifest(folder)
    except OSError as error:
        raise BundleError(f"Cannot read {error.filename or folder}: {error.strerror}.") from error


def checked_entries(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, or raise `BundleError` if it is altered, or an entry is missing or invalid."""
    path, manifest = folder / MANIFEST, read_manifest_file(folder)
    hashes = manifest.get("sha256", {})
    missing = [name for name in REQUIRED if name not in manifest]
    missing += [name for name in (MODEL, CASES) if isinstance(hashes, dict) and name not in hashes]
    if missing:
        raise BundleError(f"{path} is incomplete: it has no entry for {', '.join(missing)}.")
    if problem := problem_of(manifest, _ENTRIES):
        raise BundleError(f"{path} is not a bundle's manifest: {problem}. Export the model again.")
    return manifest
