"""Replay a bundle's golden cases with numpy and onnxruntime, and nothing else.

This one file does two jobs: the package imports it to open sessions and to compare outputs, and every bundle carries
a copy of it as `verify.py`, so that whoever receives the folder can check it without TensorFlow, Keras or this package:

    python verify.py [--provider cuda]

It must therefore import nothing of the package.
"""

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MODEL = "model.onnx"
CASES = "parity/cases.npz"
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

Arrays = dict[str, np.ndarray]


class ExportError(Exception):
    """Root of every error this project raises on purpose about an export or a bundle."""


class BundleError(ExportError):
    """A bundle is missing, incomplete, altered, or of a version that cannot be read."""


class ProviderError(ExportError):
    """The provider asked for is absent, or is not the one that did the work."""


# ---------------------------------------------------------------- the folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest after checking its version and the hash of every file it lists.

    Raises:
        BundleError: The folder or a file is missing, was altered, or the schema version is unknown.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise BundleError(f"No bundle at {folder}: it has no {MANIFEST}.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version, hashes = manifest["schema_version"], dict(manifest["sha256"])
        incomplete = [name for name in ("inputs", "outputs", "parity") if name not in manifest]
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"{path} is not a bundle's manifest ({type(error).__name__}). Export the model again."
        ) from error
    if version != SCHEMA_VERSION:
        raise BundleError(f"{path} has schema version {version!r}; this reader knows version {SCHEMA_VERSION} only.")
    incomplete += [name for name in (MODEL, CASES) if name not in hashes]
    if incomplete:
        raise BundleError(f"{path} is incomplete: it says nothing of {', '.join(incomplete)}.")
    for name, expected in hashes.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise BundleError(f"{path} lists `{name}`, which is outside the bundle.")
        if not file.is_file():
            raise BundleError(f"{folder} is incomplete: {name} is missing.")
        if sha256(file) != expected:
            raise BundleError(f"{file} is not the file that was exported: its sha256 differs from the manifest's.")
    return manifest


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an `.npz` file by name. Nothing pickled is read, since reading it can run code.

    Raises:
        ValueError: It is not an `.npz` file of plain arrays.
    """
    try:
        with path.open("rb") as stream:  # opened here, since numpy leaves a broken archive that it opened open
            if not zipfile.is_zipfile(stream):
                stream.seek(0)
                single = stream.read(6) == b"\x93NUMPY"
                raise ValueError("it holds a single array, without a name" if single else "it is no zip archive")
            stream.seek(0)
            file = np.load(stream, allow_pickle=False)
            return {name: file[name] for name in file.files}
    except (EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not an .npz file of plain arrays: {error}") from error


def save_cases(path: Path, cases: Iterable[tuple[str, Arrays, Arrays]]) -> None:
    """Write golden cases, each (name, inputs, outputs), to one `.npz` file."""
    cases = list(cases)
    arrays = {"cases": np.array([name for name, _, _ in cases])}
    for index, (_, inputs, outputs) in enumerate(cases):
        arrays |= {f"{index}/inputs/{name}": value for name, value in inputs.items()}
        arrays |= {f"{index}/outputs/{name}": value for name, value in outputs.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def load_cases(path: Path) -> list[tuple[str, Arrays, Arrays]]:
    """Read what `save_cases` wrote.

    Raises:
        BundleError: The file is not one of golden cases, or holds none.
    """
    try:
        arrays = read_arrays(path)
        names = [str(name) for name in arrays["cases"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{path} is not a file of golden cases ({type(error).__name__}).") from error
    if not names:
        raise BundleError(f"{path} holds no golden case: there is nothing to compare.")
    cases = []
    for index, case in enumerate(names):
        inputs, outputs = (
            {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            for prefix in (f"{index}/inputs/", f"{index}/outputs/")
        )
        cases.append((case, inputs, outputs))
    return cases


# ------------------------------------------------------------------- running


def check_provider(provider: str) -> Any:
    """Return the onnxruntime module if it is installed and has the provider.

    Raises:
        ProviderError: onnxruntime is not installed, or lacks the provider.
    """
    if provider not in PROVIDERS:
        raise ProviderError(f"`provider` must be one of {sorted(PROVIDERS)}. Received: {provider!r}.")
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise ProviderError(
            "onnxruntime is not installed. Install keras-attn[cpu] (onnxruntime) or keras-attn[gpu] (onnxruntime-gpu)."
        ) from error
    if not hasattr(ort, "get_available_providers"):  # an empty folder is what uninstalling one of the two leaves
        raise ProviderError(
            "onnxruntime is broken: onnxruntime and onnxruntime-gpu were installed together. Uninstall both, then "
            "install keras-attn[cpu] or keras-attn[gpu]."
        )
    available = ort.get_available_providers()
    if PROVIDERS[provider] not in available:
        remedy = " Install keras-attn[gpu] in place of keras-attn[cpu]." if provider == "cuda" else ""
        raise ProviderError(f"This onnxruntime has no {PROVIDERS[provider]}, only {', '.join(available)}.{remedy}")
    return ort


def open_session(model: Path, provider: str = "cpu", *, profile_prefix: str | None = None) -> Any:
    """Open an onnxruntime session on exactly the provider asked for.

    Args:
        model: The ONNX file.
        provider: `"cpu"` or `"cuda"`. CUDA runs without TF32, which would cost three decimal digits.
        profile_prefix: Where onnxruntime writes a profile; `None` for no profile.

    Raises:
        ProviderError: onnxruntime is not installed, lacks the provider, or silently fell back to another one.
        BundleError: onnxruntime cannot load the file.
    """
    ort = check_provider(provider)
    wanted = PROVIDERS[provider]
    printed = io.StringIO()
    if provider == "cuda" and hasattr(ort, "preload_dlls"):
        with contextlib.redirect_stdout(printed):  # it prints what it cannot load
            ort.preload_dlls()  # finds the CUDA and cuDNN libraries that came as wheels or with PyTorch
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors are raised as well; lower levels report constant folding as a fault
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    provider_options = [{"use_tf32": "0"}] if provider == "cuda" else [{}]
    try:
        session = ort.InferenceSession(str(model), options, providers=[wanted], provider_options=provider_options)
    except Exception as error:
        raise BundleError(f"onnxruntime {ort.__version__} cannot load {model}: {_first_line(error)}") from error
    if session.get_providers()[0] != wanted:
        message = f"onnxruntime fell back to {session.get_providers()[0]} although {wanted} was asked for."
        raise ProviderError(f"{message} {_first_line(printed.getvalue())}".rstrip())
    return session


def run_session(session: Any, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run a session and return its outputs by name.

    Raises:
        ExportError: onnxruntime cannot run the model on these inputs, as with an index outside an embedding.
    """
    names = [output.name for output in session.get_outputs()]
    try:
        outputs = session.run(names, dict(inputs))
    except Exception as error:
        shapes = ", ".join(f"`{name}` {array.shape}" for name, array in inputs.items())
        raise ExportError(f"onnxruntime cannot run the model on inputs {shapes}: {_first_line(error)}") from error
    return dict(zip(names, outputs, strict=True))


def check_placement(profile: Path, provider: str) -> None:
    """Raise `ProviderError` unless some node of a profiled run was computed by the provider asked for.

    onnxruntime may list a provider and still place every node on the CPU; only a profile of a run shows it.
    """
    events = json.loads(profile.read_text(encoding="utf-8"))
    placed = {event.get("args", {}).get("provider") for event in events if event.get("cat") == "Node"} - {None}
    if PROVIDERS[provider] not in placed:
        raise ProviderError(f"No node ran on {PROVIDERS[provider]}: onnxruntime placed them on {sorted(placed)}.")


# ----------------------------------------------------------------- comparing


def compare(case: str, expected: Arrays, actual: Arrays, tolerance: Mapping[str, float]) -> list[dict[str, Any]]:
    """Compare one case's outputs: names first, then shapes and dtypes, then values; a row for each output.

    A float output agrees when its largest absolute difference is within `tolerance["absolute"]`, or within
    `tolerance["relative"]` of the largest magnitude expected in that output. NaN and infinities must stand in the same
    places. Other dtypes must be equal.
    """
    rows = []
    for name in [*expected, *(name for name in actual if name not in expected)]:
        if name not in actual or name not in expected:
            problem = "is missing" if name not in actual else "was not expected"
            array = expected.get(name, actual.get(name))
            rows.append(_row(case, name, array, tolerance, problem=problem))  # type: ignore[arg-type]
        else:
            rows.append(_compare_output(case, name, expected[name], actual[name], tolerance))
    return rows


def _compare_output(
    case: str, name: str, expected: np.ndarray, actual: np.ndarray, tolerance: Mapping[str, float]
) -> dict[str, Any]:
    if expected.shape != actual.shape:
        return _row(case, name, expected, tolerance, problem=f"has shape {actual.shape}, expected {expected.shape}")
    if expected.dtype != actual.dtype:
        return _row(case, name, expected, tolerance, problem=f"has dtype {actual.dtype}, expected {expected.dtype}")
    if not np.issubdtype(expected.dtype, np.floating):
        different = int(np.count_nonzero(expected != actual))
        problem = f"differs in {different} of {expected.size} places" if different else None
        return _row(case, name, expected, tolerance, float(different > 0), float(different > 0), problem)
    wide_expected, wide_actual = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide_expected) & np.isfinite(wide_actual)
    if not np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True):
        return _row(case, name, expected, tolerance, problem="has NaN or infinity in other places than expected")
    max_abs = float(np.max(np.abs(wide_expected[finite] - wide_actual[finite]), initial=0.0))
    scale = float(np.max(np.abs(wide_expected[finite]), initial=0.0))
    max_rel = max_abs / scale if scale else (0.0 if max_abs == 0 else float("inf"))
    near = max_abs <= tolerance["absolute"] or max_rel <= tolerance["relative"]
    return _row(case, name, expected, tolerance, max_abs, max_rel, None if near else "is outside the tolerance")


def _row(
    case: str,
    name: str,
    array: np.ndarray,
    tolerance: Mapping[str, float],
    max_abs: float = float("inf"),
    max_rel: float = float("inf"),
    problem: str | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "case": case,
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "max_abs": max_abs,
        "max_rel": max_rel,
        "tolerance": dict(tolerance),
        "passed": problem is None,
        "problem": problem,
    }


def run_cases(model: Path, cases: Iterable[tuple[str, Arrays, Arrays]], provider: str = "cpu") -> list[Arrays]:
    """Return the outputs of every case, computed by exactly the provider asked for."""
    with tempfile.TemporaryDirectory() as scratch:
        prefix = str(Path(scratch) / "profile") if provider != "cpu" else None
        session = open_session(model, provider, profile_prefix=prefix)
        outputs = [run_session(session, inputs) for _, inputs, _ in cases]
        if prefix is not None:
            check_placement(Path(session.end_profiling()), provider)
    return outputs


def replay(folder: Path, manifest: Mapping[str, Any], provider: str = "cpu") -> list[dict[str, Any]]:
    """Run every golden case of a bundle through onnxruntime and compare it with the outputs Keras gave."""
    cases = load_cases(folder / CASES)
    outputs = run_cases(folder / MODEL, cases, provider)
    tolerance = manifest["parity"]["tolerance"]
    pairs = zip(cases, outputs, strict=True)
    return [row for (case, _, expected), actual in pairs for row in compare(case, expected, actual, tolerance)]


def format_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as a plain text table."""
    table = [("case", "output", "shape", "max abs", "max rel", "")]
    for row in rows:
        verdict = "ok" if row["passed"] else f"FAILED: {row['problem']}"
        shape = "x".join(map(str, row["shape"])) or "scalar"
        table.append((row["case"], row["name"], shape, f"{row['max_abs']:.1e}", f"{row['max_rel']:.1e}", verdict))
    widths = [max(len(line[column]) for line in table) for column in range(5)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[5]]) for line in table
    )


def _first_line(said: BaseException | str) -> str:
    line = str(said).strip().partition("\n")[0]
    return line if line or isinstance(said, str) else type(said).__name__


def main(argv: list[str] | None = None) -> int:
    """Verify the bundle this file lies in. Exit code 0: every case matched; 1: it did not, or could not be checked."""
    parser = argparse.ArgumentParser(description="Replay this bundle's golden cases with numpy and onnxruntime.")
    parser.add_argument("--provider", choices=sorted(PROVIDERS), default="cpu")
    provider = parser.parse_args(argv).provider
    folder = Path(__file__).resolve().parent
    try:
        rows = replay(folder, read_manifest(folder), provider)
    except (ExportError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    failed = sum(not row["passed"] for row in rows)
    print(format_rows(rows))
    print(f"{len(rows) - failed} of {len(rows)} outputs match on {PROVIDERS[provider]}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
