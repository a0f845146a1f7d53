"""Checks of an untrusted bundle before onnxruntime or NumPy reads its content.

Hashes prove only that a bundle is complete: its author can compute them too. So symbolic links, large JSON files,
arrays whose header declares a huge shape, pickled arrays and external data outside the bundle are refused first.
"""

import json
import os
import stat
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._dependencies import require_extra
from .._errors import BundleError
from .._format.array_checks import check_arrays
from .._format.cases import load_cases
from .._format.files import CACHE_FOLDER
from .._format.manifest import Manifest
from .._format.names import CASES_FILE, MANIFEST, Arrays, Case

REPORT_FILE = "parity/report.json"
MAX_JSON_BYTES = 16 * 2**20  # models with hundreds of outputs have reports of some MiB
MAX_NAME_LENGTH = 1000  # characters of the name of a golden case
_LIMIT_DTYPES = (np.dtype(np.int16), np.dtype(np.bool_))  # of rounding limits, as exponents, and of ties


def check_files(folder: Path) -> None:
    """Raise `BundleError` if a bundle contains a link, a device or a large JSON file."""
    try:
        if folder.is_dir():
            for name, entry in _iterate_files(folder):
                _check_file(folder / name, entry.stat(follow_symlinks=False), name in (MANIFEST, REPORT_FILE))
    except OSError as error:
        raise BundleError(f"Cannot read {error.filename or folder}: {error.strerror}.") from error


def _iterate_files(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield names and entries of all files and links below a folder, without following links."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield prefix + entry.name, entry
            elif entry.name != CACHE_FOLDER:
                yield from _iterate_files(Path(entry.path), f"{prefix}{entry.name}/")


def _check_file(path: Path, status: os.stat_result, is_json: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise BundleError(f"{path} is {kind}, which a bundle must not contain.")
    if is_json and status.st_size > MAX_JSON_BYTES:
        raise BundleError(f"{path} must have at most {MAX_JSON_BYTES} bytes. Received: {status.st_size} bytes.")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or raise `ValueError`, or `BundleError` for a large or irregular file."""
    _check_file(path, path.lstat(), is_json=True)
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def read_golden_cases(folder: Path, manifest: Manifest) -> list[Case]:
    """Return the golden cases of a bundle, or raise `BundleError` if they do not match the manifest."""
    check_cases(folder / CASES_FILE, manifest)
    return load_cases(folder / CASES_FILE)


def check_cases(path: Path, manifest: Manifest) -> None:
    """Raise `BundleError` if the arrays of an `.npz` file do not match the manifest. Only their headers are read."""
    headers = _read_headers(path)
    names = headers.pop("cases", np.empty(()))
    parts: dict[tuple[str, str], Arrays] = {}
    for key, array in headers.items():
        index, kind, name = (*key.split("/", 2), "", "")[:3]
        parts.setdefault((index, kind), {})[name] = array
    if names.dtype.kind != "U" or names.ndim != 1 or names.dtype.itemsize > 4 * MAX_NAME_LENGTH:
        raise BundleError(f"{path}: `cases` must be a list of names of at most {MAX_NAME_LENGTH} characters.")
    indices = {index for index, _ in parts}
    if len(names) != len(indices):
        raise BundleError(f"{path} must have arrays of {len(names)} cases, as listed. Received: {len(indices)} cases.")
    for index in map(str, range(len(names))):
        inputs, outputs, limits = (parts.pop((index, kind), {}) for kind in ("inputs", "outputs", "rounding"))
        check_arrays(f"{path} has a case {index}", "input", inputs, manifest.inputs)
        check_arrays(f"{path} has a case {index}", "output", outputs, manifest.outputs)
        for name, array in limits.items():
            if name not in outputs or array.shape != outputs[name].shape or array.dtype not in _LIMIT_DTYPES:
                raise BundleError(f"{path} has a case {index} whose rounding limits `{name}` do not match the outputs.")
    if parts:
        raise BundleError(f"{path} has arrays `{'/'.join(min(parts))}`, which are not part of any golden case.")


def _read_headers(path: Path) -> Arrays:
    """Return broadcast scalars with the dtypes and shapes in the headers of an `.npz` file; they need no memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names) or any(not name.endswith(".npy") for name in names):
                raise ValueError("array names must be unique and end in .npy")
            return {name.removesuffix(".npy"): _read_header(archive, name) for name in names}
    except Exception as error:  # zipfile, zlib and NumPy raise errors of many kinds for damaged files
        raise BundleError(f"{path} is not an .npz file of plain arrays: {error}.") from error


def _read_header(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            raise ValueError(f"`{name}` has version {version} of NumPy's format")
        shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError(f"`{name}` contains pickled objects, and reading them can run code")
    is_text = dtype.kind == "U" and name != "cases.npy"
    return np.broadcast_to(np.empty((), object if is_text else dtype), shape)


def check_external_data(model: Path, files: Container[str]) -> None:
    """Raise `BundleError` if an ONNX file has external data outside the files of the bundle."""
    with require_extra("runtime", "Opening a bundle"):
        import onnx
    try:
        locations = list(_find_locations(onnx.load(str(model), load_external_data=False)))
    except Exception as error:  # the class of protobuf's exception depends on its implementation
        raise BundleError(f"{model} is not an ONNX file: {error}.") from error
    for location in locations:
        # onnxruntime interprets the location `*/_ORT_MEM_ADDR_/*` as a memory address.
        if location not in files or "*/" in location:
            raise BundleError(f"{model} stores external data in `{location}`, which the manifest does not list.")


def _find_locations(model: Any) -> Iterator[str]:
    """Yield the locations of external data of all tensors, including subgraphs, functions and sparse tensors."""
    messages = [model]
    while messages:
        message = messages.pop()
        if message.DESCRIPTOR.name == "TensorProto":
            yield from (entry.value for entry in message.external_data if entry.key == "location")
        for field, value in message.ListFields():
            if field.message_type is not None:
                messages.extend([value] if hasattr(value, "ListFields") else value)
