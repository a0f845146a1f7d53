"""Replay a bundle's golden cases with numpy and onnxruntime, and nothing else.

This one file does two jobs: the package imports it to open sessions and to compare outputs, and every bundle carries
a copy of it as `verify.py`, so that whoever receives the folder can check it without TensorFlow, Keras or this package:

    python verify.py [--provider cuda]

It must therefore import nothing of the package.
"""

import argparse
import contextlib
import ctypes
import hashlib
import io
import json
import math
import os
import re
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TextIO

import numpy as np

SCHEMA_VERSION = 3
MANIFEST = "manifest.json"
MODEL = "model.onnx"
CASES = "parity/cases.npz"
DIGEST = "manifest_sha256"
# What the attention of a file is written for: a CPU, a GPU as on CUDA, or whatever has the standard operators.
FOR_CPU, FOR_CUDA, FOR_ANY = "cpu", "cuda", "any"


class Provider(NamedTuple):
    """An execution provider of onnxruntime.

    Attributes:
        name: onnxruntime's name of it.
        written_for: What the attention of a file for it is written for.
        options: What it is told when a session is opened: to compute in float32.
        session_options: Attributes that it wants of the `SessionOptions`.
        lenience: How many times a limit may be passed that was measured on a CPU: others add up in another order.
        brought_by: What installs it, or has to be installed.
        seen: Whether golden cases were replayed on it; otherwise it is written from its documentation.
    """

    name: str
    written_for: str = FOR_ANY
    options: Mapping[str, str] = MappingProxyType({})
    session_options: Mapping[str, Any] = MappingProxyType({})
    lenience: float = 4.0
    brought_by: str = "an onnxruntime that is built with it"
    seen: bool = False


PROVIDERS = {
    "cpu": Provider(
        "CPUExecutionProvider", FOR_CPU, lenience=1.0, brought_by='pip install "keras-attn[runtime]"', seen=True
    ),
    # TF32 would cost three decimal digits. Left to itself, cuDNN was timed, and took another algorithm in the next
    # session; since 1.20 each setting means a heuristic, and of these DEFAULT is the slow one (onnxruntime 19822).
    "cuda": Provider(
        "CUDAExecutionProvider",
        FOR_CUDA,
        {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"},
        brought_by='pip install "keras-attn[gpu]"',
        seen=True,
    ),
    # In float32, that is: OpenVINO documents bfloat16 as what it takes where a processor has it.
    "openvino": Provider(
        "OpenVINOExecutionProvider",
        options={"device_type": "CPU", "precision": "FP32"},
        brought_by='pip install "keras-attn[openvino]"',
        lenience=1.0,
        seen=True,
    ),
    "tensorrt": Provider("TensorrtExecutionProvider", brought_by='pip install "keras-attn[gpu]", and TensorRT'),
    "directml": Provider(
        "DmlExecutionProvider",
        session_options={"enable_mem_pattern": False},  # which it does not take; runs are sequential by themselves
        brought_by="onnxruntime-directml",
    ),
    # The Neural Engine computes in float16.
    "coreml": Provider(
        "CoreMLExecutionProvider",
        options={"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"},
        brought_by="onnxruntime for macOS",
    ),
    "webgpu": Provider("WebGpuExecutionProvider", brought_by="onnxruntime-webgpu"),
    "migraphx": Provider("MIGraphXExecutionProvider", brought_by="onnxruntime-migraphx"),
    "qnn": Provider("QNNExecutionProvider", brought_by="onnxruntime-qnn"),
    **{
        name.lower(): Provider(f"{name}ExecutionProvider")
        for name in ("Dnnl", "VitisAI", "Nnapi", "VSINPU", "Js", "Rknpu", "WebNN", "Xnnpack", "CANN")
    },
}
# What onnxruntime says where there is no driver, no device, or not the one asked for.
_NO_DEVICE = re.compile(r"(CUDA|CUDNN|CUBLAS)\w* failure|CUDA driver|CUDA-capable|Invalid device ID", re.IGNORECASE)

_OPENVINO = "[OpenVINO-EP]"

FILL = 1e4  # what masks write in place of a result is larger
MOST_FILLS = 8  # different ones in one output

# How the exporter names the nodes of an attention layer, and what onnxruntime leaves of it in a profile.
_OF_ATTENTION = re.compile(r"keras_attn/(?P<layer>.+)/\w+_\d+/(?P<node>[A-Za-z]+_\d+)")

Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
    """A golden case.

    Attributes:
        name: Its name.
        inputs: Arrays by input name.
        outputs: What Keras gives for them.
        rounding: By output, how far off each number may be because of rounding alone; for integers and booleans, True
            where rounding decides which it is, so that any will do.
    """

    name: str
    inputs: Arrays
    outputs: Arrays
    rounding: Mapping[str, np.ndarray] = MappingProxyType({})


class ExportError(Exception):
    """Root of every error this project raises on purpose about an export or a bundle."""


class BundleError(ExportError):
    """A bundle is missing, incomplete, altered, or of a version that cannot be read."""


class ProviderError(ExportError):
    """The provider asked for is absent, or is not the one that did the work."""


# ---------------------------------------------------------------- the folder


@dataclass(frozen=True)
class Spec:
    """An input or output as a manifest describes it; a string in the shape names a dynamic axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Spec":
        """Return what the JSON of one says."""
        return cls(content["name"], content["dtype"], tuple(content["shape"]))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What `manifest.json` says, a field for each key: docs/export.md has what they mean.

    One without a default must be there; the others are missing in bundles that are older than they.
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
        """Return what the JSON of a manifest says, of which it is known that nothing is missing."""
        known = {each.name: content[each.name] for each in fields(cls) if each.name in content}
        specs = {kind: tuple(map(Spec.of, content[kind])) for kind in ("inputs", "outputs")}
        return cls(**{**known, **specs})

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The inputs and the outputs."""
        return *self.inputs, *self.outputs

    @property
    def lengths(self) -> dict[str, str]:
        """The input that counts along an axis, by the axis."""
        counting = [spec.name for spec in self.inputs if spec.name in self.counts and "int" in spec.dtype]
        return {self.counts[name]: name for name in counting}


NEEDED = [each.name for each in fields(Manifest) if each.default is MISSING and each.default_factory is MISSING]


class Kind(NamedTuple):
    """What a value of JSON must be: in words, and whether it is."""

    said: str
    holds: Callable[[Any], bool]


class Each(NamedTuple):
    """A list of values of one schema, of at least 0 or 1 values."""

    schema: Any
    least: int = 0


class OrNull(NamedTuple):
    """A value of a schema, or nothing."""

    schema: Any


UNWRITABLE = re.compile(
    r"[\x00\ud800-\udfff]"
)  # NumPy drops trailing zeros, and UTF-8 cannot encode unpaired surrogates
STRING = "string"  # arrays of Python's `str` in memory, and of NumPy's dtype `U` in a file
_NUMBERS = ("bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")
DTYPES = (*_NUMBERS, STRING)


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e300


TEXT = Kind("text", lambda value: isinstance(value, str))
NAME = Kind("a name", lambda value: isinstance(value, str) and value != "")
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a whole number of 0 or more", lambda value: _is_whole(value, 0))
STEP = Kind("a whole number of 1 or more", lambda value: _is_whole(value, 1))
AXIS = Kind("a size of 0 or more or the name of an axis", lambda value: COUNT.holds(value) or NAME.holds(value))
NUMBER = Kind("a finite number", _is_number)
LIMIT = Kind("a number of 0 or more", lambda value: _is_number(value) and value >= 0)
DTYPE = Kind(f"one of {', '.join(DTYPES)}", lambda value: isinstance(value, str) and value in DTYPES)
VERSION = Kind(
    "a version such as 1.18", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9]+\.[0-9]+", value))
)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype that arrays of a manifest's dtype have in memory."""
    return np.dtype(object if name == STRING else name)


def dtype_name(array: np.ndarray) -> str:
    """Return what a manifest calls the dtype of an array."""
    return STRING if array.dtype == object else str(array.dtype)


# A schema is one of the above; or schemas by key, of which one with a `?` may be missing, and others than these may be
# there; or one schema under `*`, for values by any names.
TOLERANCE = {"relative": LIMIT, "absolute": LIMIT}
_SPECS = Each({"name": NAME, "dtype": DTYPE, "shape": Each(AXIS)}, least=1)
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


def problem_of(value: Any, schema: Any, place: str = "") -> str | None:
    """Return where a value of JSON is not what a schema says, and what must be there; `None` where all is well."""
    if isinstance(schema, Kind):
        return None if schema.holds(value) else f"`{place}` must be {schema.said}"
    if isinstance(schema, OrNull):
        return None if value is None else problem_of(value, schema.schema, place)
    if isinstance(schema, Each):
        if not isinstance(value, list):
            return f"`{place}` must be a list"
        if len(value) < schema.least:
            return f"`{place}` must not be empty"
        return _first_problem((each, schema.schema, f"{place}[{number}]") for number, each in enumerate(value))
    if not isinstance(value, dict):
        return f"`{place}` must be an object" if place else "it must be an object"
    if "*" in schema:
        return _first_problem((each, schema["*"], f"{place}.{name}") for name, each in value.items())
    within = f"{place}." if place else ""
    if lost := [key for key in schema if key not in value and not key.endswith("?")]:
        return f"`{within}{lost[0]}` is missing"
    known = ((key.removesuffix("?"), inner) for key, inner in schema.items())
    return _first_problem((value[key], inner, within + key) for key, inner in known if key in value)


def _first_problem(values: Iterable[tuple[Any, Any, str]]) -> str | None:
    return next(filter(None, (problem_of(*each) for each in values)), None)


def manifest_bytes(content: Mapping[str, Any]) -> bytes:
    """Return the only bytes that a manifest of this content may have; the last entry is the digest of all others."""
    plain = {name: value for name, value in content.items() if name != DIGEST}
    written = (json.dumps(plain, indent=2, allow_nan=False) + "\n").encode("ascii")
    digest = hashlib.sha256(written).hexdigest()
    return written.removesuffix(b"\n}\n") + f',\n  "{DIGEST}": "{digest}"\n}}\n'.encode("ascii")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest after checking it and every file of the bundle.

    Raises:
        BundleError: The folder or a file is missing, was altered or added, or cannot be read; the schema version is
            unknown; or the installed onnxruntime is older than the bundle needs.
    """
    try:
        content = checked_entries(folder)
        manifest = Manifest.of(content)
        lowest = manifest.lowest_onnxruntime
        if found := older_onnxruntime(lowest):
            raise BundleError(
                f"{folder} needs onnxruntime {lowest} or newer, and {found} is installed. Upgrade onnxruntime."
            )
        _check_names(folder, manifest.sha256)
        check_hashes(folder, manifest.sha256)
    except OSError as error:
        raise BundleError(f"Cannot read {error.filename or folder}: {error.strerror}.") from error
    return content


def opened_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, of which it is known that nothing in it was altered, and no more.

    Raises:
        BundleError: There is none, it is of another version, or was altered.
    """
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
        manifest = json.loads(raw)
        version = manifest["schema_version"]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        why = "it is a file, and a bundle is a folder" if folder.is_file() else f"it has no {MANIFEST}"
        raise BundleError(f"No bundle at {folder}: {why}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BundleError(
            f"{path} is not a bundle's manifest ({type(error).__name__}). Export the model again."
        ) from error
    if type(version) is not int or version != SCHEMA_VERSION:
        remedy = " Export the model again." if version in (1, 2) else ""
        raise BundleError(
            f"{path} has schema version {version!r}; this reader knows version {SCHEMA_VERSION} only.{remedy}"
        )
    try:
        altered = raw != manifest_bytes(manifest)
    except (ValueError, RecursionError):  # ValueError for NaN, which is no JSON
        altered = True
    if altered:
        raise BundleError(f"{path} is not the file that was exported: it does not match its own `{DIGEST}`.")
    return dict(manifest)


UNLISTED = (".DS_Store", "Thumbs.db")  # files that file managers add to folders by themselves


def checked_entries(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, in which what readers look for is what it must be.

    Raises:
        BundleError: As for `opened_manifest`, or an entry is missing or is something else.
    """
    path, manifest = folder / MANIFEST, opened_manifest(folder)
    hashes = manifest.get("sha256", {})
    missing = [name for name in NEEDED if name not in manifest]
    missing += [name for name in (MODEL, CASES) if isinstance(hashes, dict) and name not in hashes]
    if missing:
        raise BundleError(f"{path} is incomplete: it says nothing of {', '.join(missing)}.")
    if problem := problem_of(manifest, _ENTRIES):
        raise BundleError(f"{path} is not a bundle's manifest: {problem}. Export the model again.")
    return manifest


def older_onnxruntime(lowest: str) -> str | None:
    """Return the version of the installed onnxruntime if it is older than `lowest`; one that is absent is not."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    installed = str(getattr(ort, "__version__", ""))
    found = re.match(r"([0-9]+)\.([0-9]+)", installed)
    return installed if found and (int(found[1]), int(found[2])) < tuple(map(int, lowest.split("."))) else None


def _check_names(folder: Path, hashes: Mapping[str, str]) -> None:
    """Raise `BundleError` unless the folder holds the listed files and no others."""
    files = {name for name, entry in files_in(folder) if entry.name not in UNLISTED}
    if missing := hashes.keys() - files:
        raise BundleError(f"{folder} is incomplete: {min(missing)} is missing.")
    if extra := files - hashes.keys() - {MANIFEST}:
        raise BundleError(f"{folder} holds {min(extra)}, which its manifest does not list. Keep other files elsewhere.")


def check_hashes(folder: Path, hashes: Mapping[str, str]) -> None:
    """Raise `BundleError` unless the files are what they were at export."""
    for name, expected in hashes.items():
        if sha256(folder / name) != expected:
            raise BundleError(
                f"{folder / name} is not the file that was exported: its sha256 differs from the manifest's."
            )


def files_in(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the names and entries of everything below a folder except for folders, without following links."""
    waiting = [(folder, "")]
    while waiting:
        place, prefix = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield prefix + entry.name, entry
                elif entry.name != "__pycache__":  # which Python adds
                    waiting.append((Path(entry.path), f"{prefix}{entry.name}/"))


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------ the cases


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an `.npz` file by name. Pickles are refused, since reading them can run code.

    Raises:
        ValueError: The file is not an `.npz` file of plain arrays.
        OSError: The file cannot be opened.
    """
    try:
        if not zipfile.is_zipfile(path):
            path.open("rb").close()  # `is_zipfile` is false for a missing file too
            raise ValueError("it is no zip archive")
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _read_array(archive, name) for name in archive.namelist()}
    except Exception as error:
        # zipfile, zlib, lzma and NumPy raise errors of many kinds for damaged files
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file, not what is in it
        raise ValueError(f"{path} is not an .npz file of plain arrays: {error}") from error


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def save_cases(path: Path, cases: Iterable[Case]) -> None:
    """Write golden cases to one `.npz` file; what rounding may do to floats in steps of a factor of the root of 2."""
    cases = list(cases)
    arrays = {"cases": np.array([case.name for case in cases])}
    for index, case in enumerate(cases):
        arrays |= {f"{index}/inputs/{name}": without_objects(value) for name, value in case.inputs.items()}
        arrays |= {f"{index}/outputs/{name}": without_objects(value) for name, value in case.outputs.items()}
        arrays |= {f"{index}/rounding/{name}": _steps(value) for name, value in case.rounding.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def decoded(array: np.ndarray | bytes) -> np.ndarray:
    """Return an array of `str` where TensorFlow gives bytes; any other as it is.

    Raises:
        UnicodeDecodeError: Bytes are no UTF-8.
    """
    if isinstance(array, bytes):  # of no axis
        return np.array(array.decode(), object)
    if array.dtype != object:
        return array
    strings = np.empty(array.shape, object)
    strings.flat[:] = [each.decode() for each in array.flat]
    return strings


def without_objects(array: np.ndarray) -> np.ndarray:
    """Return an array as a file may hold it: strings in NumPy's dtype `U`."""
    return array.astype(str) if array.dtype == object else array


def _with_strings(array: np.ndarray) -> np.ndarray:
    """Return an array with strings as objects, the inverse of `without_objects`."""
    return array.astype(object) if array.dtype.kind == "U" else array


_NONE = np.iinfo(np.int16).min  # stands for a rounding of zero


def _steps(rounding: np.ndarray) -> np.ndarray:
    """Return sizes as twice their logarithm to base 2, rounded up: few bits where they hold little information."""
    if rounding.dtype == bool:
        return rounding
    with np.errstate(divide="ignore"):
        steps = np.ceil(2 * np.log2(rounding.astype(np.float64)))
    return np.where(np.isfinite(steps), steps, _NONE).astype(np.int16)


def _sizes(steps: np.ndarray) -> np.ndarray:
    """Return what `_steps` was made of, or up to the root of 2 more."""
    return steps if steps.dtype == bool else np.where(steps == _NONE, 0.0, 2.0 ** (steps / 2.0))


def load_cases(path: Path) -> list[Case]:
    """Read what `save_cases` wrote; whether it fits a model is not known yet.

    Raises:
        BundleError: The file is not one of golden cases, or holds none.
    """
    try:
        arrays = read_arrays(path)
        names = arrays.pop("cases").tolist()
        arrays = {key: _with_strings(array) for key, array in arrays.items()}
    except (OSError, ValueError, KeyError, SystemError) as error:  # the last of codes that are no characters
        reason = f"{type(error).__name__}: {error.__cause__ or error}"
        raise BundleError(f"{path} is not a file of golden cases ({reason}).") from error
    if not names:
        raise BundleError(f"{path} holds no golden case: there is nothing to compare.")
    parts: dict[tuple[str, str], Arrays] = {}
    for key, array in arrays.items():
        index, kind, name = (*key.split("/", 2), "", "")[:3]
        parts.setdefault((index, kind), {})[name] = array
    cases = []
    for number, case in enumerate(names):
        inputs, outputs, rounding = (parts.get((str(number), kind), {}) for kind in ("inputs", "outputs", "rounding"))
        if any(name not in outputs or steps.shape != outputs[name].shape for name, steps in rounding.items()):
            raise BundleError(f"{path} is not a file of golden cases: its rounding does not fit the outputs.")
        if any(steps.dtype not in (np.int16, np.bool_) for steps in rounding.values()):
            raise BundleError(f"{path} is not a file of golden cases: its rounding must be of dtype int16 or bool.")
        cases.append(Case(case, inputs, outputs, {name: _sizes(steps) for name, steps in rounding.items()}))
    return cases


def golden_cases(folder: Path, manifest: Manifest) -> list[Case]:
    """Return the golden cases of a bundle, of which it is known that they fit what its manifest says.

    Raises:
        BundleError: They do not, or their file is none of golden cases.
    """
    cases = load_cases(folder / CASES)
    for case in cases:
        check_arrays(f"{folder / CASES} has a case `{case.name}`", "input", case.inputs, manifest.inputs)
        check_arrays(f"{folder / CASES} has a case `{case.name}`", "output", case.outputs, manifest.outputs)
    return cases


def check_arrays(said: str, kind: str, arrays: Arrays, specs: Iterable[Spec]) -> None:
    """Raise `BundleError` unless arrays are what a manifest says of inputs or outputs; sizes may be left open.

    Args:
        said: How the sentence begins.
        kind: What the arrays are.
        arrays: By name.
        specs: What the manifest says.
    """
    wanted = {spec.name: spec for spec in specs}
    if arrays.keys() != wanted.keys():
        raise BundleError(f"{said} with {kind}s {[*arrays][:9]}, and the manifest says {[*wanted][:9]}.")
    for name, array in arrays.items():
        spec = wanted[name]
        sizes = zip(array.shape, spec.shape, strict=False)
        fits = array.ndim == len(spec.shape) and all(isinstance(want, str) or have == want for have, want in sizes)
        if array.dtype != numpy_dtype(spec.dtype) or not fits:
            found = f"{dtype_name(array)} of shape {array.shape}"
            raise BundleError(
                f"{said} with {kind} `{name}` in {found}; the manifest says {spec.dtype} of {spec.shape}."
            )


# ------------------------------------------------------------------- stopping

GRACE_SECONDS = 1.5  # from a signal to `os._exit`, if code catches the exception or a C call delays it
_handles_signals = False  # whether `stopping_at_signals` is active in the main thread


@contextlib.contextmanager
def stopping_at_signals(*, is_process: bool = True) -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` at Ctrl-C and `SystemExit` at SIGTERM, then end a process; yield the signals."""
    global _handles_signals
    signals: list[int] = []
    timer = threading.Timer(GRACE_SECONDS, lambda: is_process and os._exit(128 + signals[0]))
    is_main, before = threading.current_thread() is threading.main_thread(), _handles_signals  # others get no signals
    foreign = (signal.SIG_IGN, None)  # set by `nohup` and the `&` of a shell, or by a C library
    caught = [sig for sig in (signal.SIGINT, signal.SIGTERM) if is_main and signal.getsignal(sig) not in foreign]

    def stop(number: int, _: object) -> NoReturn:
        signals.append(number)
        for other in caught:  # a second one would interrupt the cleanup: `timeout` sends two
            signal.signal(other, signal.SIG_IGN)
        timer.start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    handlers = {number: signal.signal(number, stop) for number in caught}
    _handles_signals = is_main
    try:
        yield signals
    finally:
        timer.cancel()
        _handles_signals = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


def interruptible(compute: Callable[[Any], Any]) -> Any:
    """Call a function with `onnxruntime.RunOptions` that a signal terminates; outside of a command, with `None`."""
    if not _handles_signals or threading.current_thread() is not threading.main_thread():
        return compute(None)
    import onnxruntime as ort

    # Python runs handlers of signals in the main thread only, and not while that is in onnxruntime.
    options, executor = ort.RunOptions(), ThreadPoolExecutor(1)
    future = executor.submit(compute, options)
    try:
        while not future.done():
            wait([future], timeout=0.1)  # Windows handles no signal during a longer wait
        return future.result()
    finally:
        options.terminate = True
        executor.shutdown(wait=False)


# ------------------------------------------------------------------- running


def short_name(provider: str) -> str:
    """Return the name that an execution provider has here, for that or for onnxruntime's name of it.

    Raises:
        ProviderError: It is neither.
    """
    if isinstance(provider, str):
        if provider in PROVIDERS:
            return provider
        for short, known in PROVIDERS.items():
            if provider == known.name:
                return short
    try:
        import onnxruntime as ort

        installed = f" The onnxruntime that is installed has {', '.join(ort.get_available_providers())}."
    except (ImportError, AttributeError):
        installed = ""
    raise ProviderError(
        f"`provider` must be one of {', '.join(PROVIDERS)}, or onnxruntime's name of it, as {PROVIDERS['cpu'].name}. "
        f"Received: {provider!r}.{installed}"
    )


def provider_of(name: str) -> Provider:
    """Return what is known of an execution provider by one of its names.

    Raises:
        ProviderError: There is none of that name.
    """
    return PROVIDERS[short_name(name)]


def check_provider(provider: str) -> Any:
    """Return the onnxruntime module if it is installed and has the provider.

    Raises:
        ProviderError: onnxruntime is not installed, or lacks the provider.
    """
    wanted = provider_of(provider)
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise ProviderError(
            f'onnxruntime cannot be imported ({error}): pip install "keras-attn[runtime]", or onnxruntime alone; for a '
            'GPU "keras-attn[gpu]", or onnxruntime-gpu.'
        ) from error
    if not hasattr(ort, "get_available_providers"):  # an empty folder is what uninstalling one of the two leaves
        raise ProviderError(
            "onnxruntime is broken: onnxruntime and onnxruntime-gpu were installed together. Uninstall both, then "
            "install one of them: onnxruntime for CPUs, onnxruntime-gpu for GPUs."
        )
    available = ort.get_available_providers()
    if wanted.name not in available:
        raise ProviderError(
            f"This onnxruntime has no {wanted.name}, only {', '.join(available)}. Uninstall it, since two packages of "
            f"onnxruntime overwrite each other, and install another: {wanted.brought_by}."
        )
    return ort


def open_session(
    model: Path,
    provider: str = "cpu",
    *,
    profile_prefix: str | None = None,
    threads: int | None = None,
    session_options: Any = None,
) -> Any:
    """Open an onnxruntime session on exactly the provider asked for.

    Args:
        model: The ONNX file.
        provider: Which, by one of its names; it gets the options that `PROVIDERS` has.
        profile_prefix: Where onnxruntime writes a profile; `None` for no profile.
        threads: How many threads a run uses, which then do not wait for the next run with a spinning loop, so that
            sessions can be timed side by side; `None` leaves both to onnxruntime.
        session_options: The `onnxruntime.SessionOptions` to open it with, where there are any.

    Raises:
        ProviderError: onnxruntime is not installed, lacks the provider, finds no device for it, or silently fell back
            to another one.
        BundleError: onnxruntime cannot load the file.
    """
    ort, known = check_provider(provider), provider_of(provider)
    wanted = known.name
    printed = io.StringIO()
    on_cuda = known is PROVIDERS["cuda"]
    if on_cuda and hasattr(ort, "preload_dlls"):
        with contextlib.redirect_stdout(printed):  # it prints what it cannot load
            ort.preload_dlls()  # finds the CUDA and cuDNN libraries that came as wheels or with PyTorch
    options = ort.SessionOptions() if session_options is None else session_options
    if session_options is None:
        options.log_severity_level = 4  # errors are raised as well; lower levels report constant folding as a fault
    for name, value in known.session_options.items():
        setattr(options, name, value)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    if threads is not None:
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = interruptible(
            lambda _: ort.InferenceSession(
                str(model),
                options,
                providers=[wanted],
                provider_options=[dict(known.options)],
                enable_fallback=0,  # else a failure, here or in a run, is printed and the CPU takes over
            )
        )
    except Exception as error:
        if known is not PROVIDERS["cpu"] and (found := _NO_DEVICE.search(str(error))):
            said = _first_line(str(error)[found.start() :]).partition(" ;")[0]  # C++ stands before it, the host after
            raise ProviderError(f"onnxruntime {ort.__version__} cannot use {wanted}: {said}") from error
        raise BundleError(
            f"onnxruntime {ort.__version__} cannot load {model}: {_reason(error)}{_remedy(error, provider)}"
        ) from error
    if session.get_providers()[0] != wanted:
        built = getattr(ort, "cuda_version", "") if on_cuda else ""
        told = [
            f"onnxruntime fell back to {session.get_providers()[0]} although {wanted} was asked for.",
            f"It is built for CUDA {built}." if built else "",
            _first_line(printed.getvalue()) or (_unloadable(ort) if on_cuda else ""),
            'Its libraries come with pip install "onnxruntime-gpu[cuda,cudnn]".' if on_cuda else "",
        ]
        raise ProviderError(" ".join(filter(None, told)))
    return session


def _reason(error: BaseException) -> str:
    """Return what onnxruntime says in a line; OpenVINO's provider says it behind functions of C++."""
    said = str(error)
    return " ".join(said.rpartition(_OPENVINO)[2].split()) if _OPENVINO in said else _first_line(error)


def _remedy(error: BaseException, provider: str) -> str:
    if short_name(provider) in ("cpu", "cuda"):
        return ""
    if "node not found in graph cache" in str(error):
        return (
            ". OpenVINO's provider loads no `Loop` and no `If` that reads what is computed outside of it. Those of "
            "attention an export with `provider='openvino'` leaves out; a model that has its own runs on 'cpu'."
        )
    return f". Was it exported with `provider={short_name(provider)!r}`? Its file is made of standard operators."


def _unloadable(ort: Any) -> str:
    """Return why Linux cannot load onnxruntime's library for CUDA, which onnxruntime itself prints and no more."""
    library = Path(getattr(ort, "__file__", None) or "").parent / "capi" / "libonnxruntime_providers_cuda.so"
    if sys.platform == "linux":
        try:
            ctypes.CDLL(str(library))
        except OSError as error:  # a symbol that is missing onnxruntime would have brought
            return "" if "undefined symbol" in str(error) else _first_line(error)
    return ""


def run_session(session: Any, inputs: Mapping[str, np.ndarray], options: Any = None) -> Arrays:
    """Run a session and return its outputs by name.

    Args:
        session: The session.
        inputs: Arrays by input name.
        options: The `onnxruntime.RunOptions`; setting their `terminate` ends the run from another thread.

    Raises:
        ExportError: onnxruntime cannot run the model on these inputs, as with an index outside an embedding.
    """
    names = [output.name for output in session.get_outputs()]
    try:
        outputs = interruptible(lambda stoppable: session.run(names, dict(inputs), options or stoppable))
    except Exception as error:
        shapes = ", ".join(f"`{name}` {array.shape}" for name, array in inputs.items())
        failed = f"onnxruntime cannot run the model on inputs {shapes}: {_first_line(error)}"
        if PROVIDERS["cuda"].name in session.get_providers() and "NOT_IMPLEMENTED" in str(error).upper():
            remedy = "Export with `provider='cuda'`, whose file is made of what CUDA has."
            raise ProviderError(f"{failed} {remedy}") from error
        raise ExportError(failed) from error
    found = dict(zip(names, outputs, strict=True))
    if odd := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
        raise ExportError(f"Output `{odd[0]}` of the model is no array of numbers or strings, which no export writes.")
    return found


class Placed(NamedTuple):
    """A node of an attention layer in a profiled run.

    Attributes:
        layer: The path of the layer.
        node: The operator, and its number in the layer.
        provider: onnxruntime's name of what computed it.
    """

    layer: str
    node: str
    provider: str


def attention_nodes(events: Iterable[Mapping[str, Any]]) -> list[Placed]:
    """Return the nodes of attention layers in the events of a profile that read rows of numbers, each once, in order.

    Sizes are left out, which onnxruntime computes on the CPU on purpose, and masks.
    """
    found = []
    for event in events:
        arguments = event.get("args", {})
        named = _OF_ATTENTION.search(event.get("name", ""))
        makes_sizes = arguments.get("op_name") in ("Shape", "Size")
        if event.get("cat") == "Node" and named and not makes_sizes and _reads_rows(arguments):
            found.append(Placed(named["layer"], named["node"], arguments.get("provider", "")))
    return list(dict.fromkeys(found))


def _reads_rows(arguments: Mapping[str, Any]) -> bool:
    taken = [(kind, shape) for each in arguments.get("input_type_shape", ()) for kind, shape in each.items()]
    return any(len(shape) > 1 and ("float" in kind or kind == "double") for kind, shape in taken)


def check_placement(profile: Path, provider: str) -> None:
    """Raise `ProviderError` unless the provider asked for computed a profiled run: some node, and all of attention.

    onnxruntime may list a provider and still place nodes on the CPU; only a profile of a run shows it.
    """
    events = json.loads(profile.read_text(encoding="utf-8"))
    wanted = provider_of(provider).name
    placed = {event.get("args", {}).get("provider") for event in events if event.get("cat") == "Node"} - {None}
    if wanted not in placed:
        raise ProviderError(f"No node ran on {wanted}: onnxruntime placed them on {sorted(placed)}.")
    elsewhere: dict[tuple[str, str], list[str]] = {}
    for layer, node, other in attention_nodes(events):
        if other != wanted:
            elsewhere.setdefault((layer, other), []).append(node)
    if elsewhere:
        told = [f"of layer `{layer}` {', '.join(nodes)} on {other}" for (layer, other), nodes in elsewhere.items()]
        raise ProviderError(f"Attention did not run on {wanted} alone: {'; '.join(told)}.")


# ----------------------------------------------------------------- comparing


def compare(case: Case, actual: Arrays, tolerance: Mapping[str, float], lenience: float = 1.0) -> list[dict[str, Any]]:
    """Compare one case's outputs: names first, then shapes and dtypes, then values; a row for each output.

    A float agrees when its difference is within its limit, the largest of: `tolerance["absolute"]`;
    `tolerance["relative"]` of what stands beside it (`scale_of`); and `lenience` times its rounding in the case. NaN
    and infinities must stand in the same places. Other dtypes must be equal, except where rounding decides.
    """
    expected, rows = case.outputs, []
    for name in [*expected, *(name for name in actual if name not in expected)]:
        if name not in actual:
            found = _Difference(problem="is missing")
        elif name not in expected:
            found = _Difference(problem="was not expected")
        else:
            found = _difference(expected[name], actual[name], case.rounding.get(name), tolerance, lenience)
        array = expected[name] if name in expected else actual[name]
        row = {"name": name, "case": case.name, "shape": list(array.shape), "dtype": dtype_name(array)}
        passed = found.problem is None
        rows.append({**row, **found._asdict(), "tolerance": dict(tolerance), "passed": passed})
    return rows


class _Difference(NamedTuple):
    """By how much two outputs differ.

    Attributes:
        max_abs: The largest difference.
        max_rel: The largest as a share of what stands beside it.
        of_limit: The largest as a share of its limit.
        ties: In how many places rounding decided.
        problem: Why they do not match, or `None`.
    """

    max_abs: float = math.inf
    max_rel: float = math.inf
    of_limit: float = math.inf
    ties: int = 0
    problem: str | None = None


def _difference(
    expected: np.ndarray,
    actual: np.ndarray,
    rounding: np.ndarray | None,
    tolerance: Mapping[str, float],
    lenience: float,
) -> _Difference:
    if expected.shape != actual.shape:
        return _Difference(problem=f"has shape {actual.shape}, expected {expected.shape}")
    if expected.dtype != actual.dtype:
        return _Difference(problem=f"has dtype {actual.dtype}, expected {expected.dtype}")
    if not np.issubdtype(expected.dtype, np.floating):
        different = np.asarray(expected != actual)
        tied = different & rounding if rounding is not None and rounding.dtype == bool else np.zeros_like(different)
        wrong, ties = (int(np.count_nonzero(places)) for places in (different & ~tied, tied))
        problem, size = (f"differs in {wrong} of {expected.size} places", 1.0) if wrong else (None, 0.0)
        return _Difference(size, size, size, ties, problem)
    wide_expected, wide_actual = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide_expected) & np.isfinite(wide_actual)
    if not np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True):
        return _Difference(problem="has NaN or infinity in other places than expected")
    scale = scale_of(wide_expected)
    limit = np.maximum(tolerance["absolute"], tolerance["relative"] * scale)
    if rounding is not None:
        limit, scale = np.maximum(limit, lenience * rounding), np.maximum(scale, rounding)
    difference = np.where(finite, np.abs(np.where(finite, wide_expected, 0) - np.where(finite, wide_actual, 0)), 0)
    sizes = difference, _ratio(difference, scale), _ratio(difference, limit)
    max_abs, max_rel, of_limit = (float(np.max(size, initial=0.0)) for size in sizes)
    problem = None if of_limit <= 1 else "is outside the tolerance"
    return _Difference(max_abs, max_rel, of_limit, problem=problem)


def _ratio(difference: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the quotient, where nothing in nothing is 0 and something in nothing is infinite."""
    ratio: np.ndarray = np.where(difference > 0, np.inf, 0.0)
    np.divide(difference, size, out=ratio, where=np.broadcast_to(size > 0, difference.shape))
    return ratio


def scale_of(expected: np.ndarray) -> np.ndarray:
    """Return what each number is to be seen against: its own size, or the largest of its row and of its channel.

    Of these two, the smaller counts. A large number elsewhere thus has no say, nor has one that is no result
    but fills a place, as -1e9 for what is masked.
    """
    own: np.ndarray = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    if own.size == 0:
        return own
    scale: np.ndarray = np.maximum(own, _largest_beside(without_fills(own)))
    return scale


def _largest_beside(sizes: np.ndarray) -> np.ndarray:
    """Return for each number the largest of its row or of its channel, whichever is less.

    A channel is an index of the last axis, if there are two axes or more; a row are the numbers along it. A row of one
    number has no say.
    """
    flat = sizes.reshape(-1, sizes.shape[-1] if sizes.ndim > 1 else 1)
    channels = flat.max(0, keepdims=True)
    rows = flat.max(1, keepdims=True) if flat.shape[1] > 1 else channels
    least: np.ndarray = np.broadcast_to(np.minimum(channels, rows), flat.shape)
    return least.reshape(sizes.shape)


def without_fills(sizes: np.ndarray) -> np.ndarray:
    """Return magnitudes with 0 for what is no result: beyond 1e4, and several alike or far beyond all others."""
    left = sizes
    for _ in range(MOST_FILLS):
        top = float(left.max(initial=0.0))
        alike = left >= top * (1 - 1e-4)
        others = np.where(alike, 0.0, left)
        if top < FILL or (np.count_nonzero(alike) < 2 and float(others.max()) > top / 1000):
            break
        left = others
    return left


def run_cases(model: Path, cases: Iterable[Case], provider: str = "cpu") -> list[Arrays]:
    """Return the outputs of every case, computed by exactly the provider asked for."""
    if short_name(provider) == "cpu":
        session = open_session(model)
        return [run_session(session, case.inputs) for case in cases]
    with tempfile.TemporaryDirectory() as scratch:
        session = open_session(model, provider, profile_prefix=str(Path(scratch, "profile")))
        outputs = [run_session(session, case.inputs) for case in cases]
        check_placement(Path(session.end_profiling()), provider)
    return outputs


def replay(folder: Path, manifest: Mapping[str, Any], provider: str = "cpu") -> list[dict[str, Any]]:
    """Run every golden case of a bundle through onnxruntime and compare it with the outputs Keras gave.

    Raises:
        BundleError: A file is not what it should be.
        ProviderError: As for `open_session`.
        ExportError: onnxruntime fails on a case.
    """
    cases = golden_cases(folder, Manifest.of(manifest))
    outputs = run_cases(folder / MODEL, cases, provider)
    tolerance = manifest["parity"]["tolerance"]
    pairs = zip(cases, outputs, strict=True)
    lenience = provider_of(provider).lenience
    return [row for case, actual in pairs for row in compare(case, actual, tolerance, lenience)]


# Letters that Unicode wants shown as nothing; what else nobody sees, `str.isprintable` knows.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def printable(text: str) -> str:
    """Return text with escapes for what steers a terminal, ends a line, turns the order of letters, or is not seen."""
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    shown = (each.isprintable() and not _UNSEEN.match(each) for each in text)
    return "".join(
        each if seen else each.encode("unicode_escape").decode() for each, seen in zip(text, shown, strict=True)
    )


def in_one_line(said: object) -> str:
    """Return what is said, by a library as well, without its line breaks."""
    return " ".join(str(said).split())


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print lines, on standard output if nothing else is said; whatever is in one, it stays one line.

    A bundle, a table, the name of a file and the message of a library are a stranger's words. What the encoding of the
    terminal lacks is escaped too.
    """
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in lines:
        print(printable(line).encode(encoding, "backslashreplace").decode(encoding), file=stream)


def format_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table in plain text."""
    table = [("case", "output", "shape", "max abs", "max rel", "of limit", "")]
    for row in rows:
        verdict = "ok" if row["passed"] else f"FAILED: {row['problem']}"
        verdict += f" ({row['ties']} decided by rounding)" if row["ties"] else ""
        shape = "x".join(map(str, row["shape"])) or "scalar"
        numbers = f"{row['max_abs']:.1e}", f"{row['max_rel']:.1e}", f"{row['of_limit']:.2g}"
        table.append((printable(row["case"]), printable(row["name"]), shape, *numbers, verdict))
    widths = [max(len(line[column]) for line in table) for column in range(6)]
    return ["  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[6]]) for line in table]


def _first_line(said: BaseException | str) -> str:
    line = str(said).strip().partition("\n")[0]
    return line if line or isinstance(said, str) else type(said).__name__


def add_provider(parser: argparse.ArgumentParser) -> None:
    """Add `--provider`, which takes each name of a provider, and gives the short one."""

    def named(text: str) -> str:
        try:
            return short_name(text)
        except ProviderError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    told = f"where onnxruntime computes: {', '.join(PROVIDERS)}, or onnxruntime's name of it (default cpu)"
    parser.add_argument("--provider", metavar="P", type=named, default="cpu", help=told)


def main(argv: list[str] | None = None) -> int:
    """Verify the bundle this file lies in. Exit code 0: every case matched; 1: it did not, or could not be checked."""
    parser = argparse.ArgumentParser(description="Replay this bundle's golden cases with numpy and onnxruntime.")
    add_provider(parser)
    provider = parser.parse_args(argv).provider
    folder = Path(__file__).resolve().parent
    code = 1
    with contextlib.suppress(KeyboardInterrupt, SystemExit), stopping_at_signals() as signals:
        code = _verified(folder, provider)
    return 128 + signals[0] if signals else code


def _verified(folder: Path, provider: str) -> int:
    try:
        rows = replay(folder, read_manifest(folder), provider)
        failed = sum(not row["passed"] for row in rows)
        verdict = f"{failed} of {len(rows)} outputs differ" if failed else f"all {len(rows)} outputs match"
        say(*format_rows(rows), f"{verdict} on {PROVIDERS[provider].name}.")
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads the output
        return 141
    except (ExportError, OSError) as error:
        with contextlib.suppress(OSError):
            say(f"error: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    exit_code = main()
    if exit_code > 128:
        os._exit(exit_code)  # without waiting for a thread that computes
    sys.exit(exit_code)
