"""Benchmark of a bundle: latency, throughput and peak memory, optionally against another ONNX file.

The sessions of both files run alternately on the same inputs, so that a change of the processor's clock or load affects
both; the ratio of their medians is the speedup. Percentiles replace a standard deviation, because latencies have a
long upper tail. Each file needs a process for its peak memory, which never decreases within a process.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import ExportError, InputError
from .._format.array_checks import fits_shape
from .._format.case_writing import save_cases
from .._format.input_arrays import validate_inputs
from .._format.interruptible_session import check_provider, open_session
from .._format.manifest import Spec
from .._format.names import MODEL, Arrays, Case, dtype_name
from .._format.parity_report import encode_nonfinite, measure_differences
from .._format.providers import short_name
from .._latency import measure_latencies
from .._machine import count_usable_cpus, describe_environment
from .._processes import peak_memory
from .._progress import ProgressCallback
from .bundle import Bundle, load_bundle
from .untrusted_input import read_golden_cases

MEASURED_SECONDS = 3.0  # of measured runs, all models together
WARM_UP_ROUNDS = 2  # the first run of a session allocates memory, and the second one uses it
MIN_ROUNDS, MAX_ROUNDS = 5, 100_000  # at least 5 for percentiles; the limit bounds the memory for latencies
_NUMPY_DTYPE_NAMES = {"float": "float32", "double": "float64"}  # by onnxruntime's name, if it differs


@dataclass(frozen=True)
class Timing:
    """Measurements of one ONNX file. Times are in milliseconds, memory in bytes."""

    model: str
    file_size: int  # without external data
    load: float  # time to open the session
    runs: int
    median: float  # of the latency; p5 and p95 are percentiles
    p5: float
    p95: float
    rows_per_second: float
    peak_memory: int  # resident memory of a fresh process that loads and runs the model
    model_memory: int  # the increase of `peak_memory` by loading and running the model


@dataclass(frozen=True)
class Bench:
    """Result of a benchmark: timings of the bundle's model, and of the other model if there is one."""

    bundle: str
    inputs: str  # source of the inputs: "given" or the name of a golden case
    shapes: dict[str, tuple[int, ...]]  # by input
    rows: int
    provider: str
    threads: int
    environment: dict[str, str]  # versions and processor
    timings: tuple[Timing, ...]
    ratio: float | None = None  # the other model's median over the bundle's; above 1 the bundle is faster
    differences: dict[str, float] | None = None  # largest absolute difference of each output of both models

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(encode_nonfinite(asdict(self)), indent=2)


def bench_bundle(
    path: str | Path,
    *,
    against: str | Path | None = None,
    inputs: Mapping[str, Any] | None = None,
    provider: str = "cpu",
    threads: int | None = None,
    seconds: float = MEASURED_SECONDS,
    on_step: ProgressCallback = lambda _: None,
) -> Bench:
    """Measure latency and memory of a bundle's ONNX model and, in alternating runs, of another model.

    Args:
        path: The bundle.
        against: Another ONNX file with the same inputs.
        inputs: Arrays by input name; `None` for the largest golden case.
        provider: Execution provider, as in `export_model`.
        threads: Threads of a run; `None` for the number of cores that this process may use.
        seconds: Time for the runs of all models together; at least 5 runs of each model are measured.
        on_step: Progress callback that receives the name of each step.

    Raises:
        BundleError: As for `load_bundle`; or if the other file cannot be loaded.
        InputError: If the inputs do not match a model.
        ProviderError: If the provider is missing, or onnxruntime used another one.
        ExportError: If an argument is out of range, or a model fails on the inputs.
    """
    threads = count_usable_cpus() if threads is None else threads
    if threads < 1 or not 0 < seconds < float("inf"):
        raise ExportError(f"`threads` and `seconds` must be above 0. Received: {threads} and {seconds}.")
    on_step("Checking the bundle")
    provider = short_name(provider)
    check_provider(provider)  # imports onnxruntime before the time to load is measured
    bundle = load_bundle(path)
    source, arrays = _choose_inputs(bundle, inputs)
    models = [bundle.path / MODEL]
    if against is not None:
        models.append(Path(against))
        if not models[1].is_file():
            raise InputError(f"There is no file {against}.")

    sessions, loads = [], []
    for model in models:
        on_step(f"Loading {model}")
        start = time.perf_counter()
        sessions.append(open_session(model, provider, threads=threads))
        loads.append(time.perf_counter() - start)
    if against is not None:
        _check_same_inputs(arrays, sessions[1], models[1])
    on_step(f"Timing for {seconds:g} seconds")
    outputs, latencies = measure_latencies(
        sessions, arrays, seconds, warm_up_rounds=WARM_UP_ROUNDS, min_rounds=MIN_ROUNDS, max_rounds=MAX_ROUNDS
    )
    peaks = []
    for model in models:
        on_step(f"Measuring the peak memory of {model}")
        peaks.append(_measure_peak_memory(model, arrays, provider, threads))

    rows = _count_rows(bundle.entries.inputs, arrays)
    timings = tuple(
        _summarize_timing(model, rows, load, runs, peak)
        for model, load, runs, peak in zip(models, loads, latencies, peaks, strict=True)
    )
    return Bench(
        bundle=str(bundle.path),
        inputs=source,
        shapes={key: array.shape for key, array in arrays.items()},
        rows=rows,
        provider=provider,
        threads=threads,
        environment=describe_environment(),
        timings=timings,
        ratio=timings[1].median / timings[0].median if against else None,
        differences=_compare_outputs(*outputs) if against else None,
    )


def _choose_inputs(bundle: Bundle, inputs: Mapping[str, Any] | None) -> tuple[str, Arrays]:
    """Return the source of the inputs and the inputs: the caller's, or the largest golden case."""
    if inputs is not None:
        return "given", validate_inputs(bundle.entries, inputs)
    cases = read_golden_cases(bundle.path, bundle.entries)
    # Cases with NaN in padding, or with zeros only, are excluded: arithmetic on such values differs in speed.
    typical = [case for case in cases if all(map(_has_typical_values, case.inputs.values()))]
    largest_case = max(typical or cases, key=lambda case: sum(array.nbytes for array in case.inputs.values()))
    return f"golden case `{largest_case.name}`", largest_case.inputs


def _has_typical_values(array: np.ndarray) -> bool:
    return bool(np.any(array) and (array.dtype == object or np.all(np.isfinite(array))))


def _check_same_inputs(inputs: Arrays, session: Any, model: Path) -> None:
    expected = {value.name: (_numpy_dtype_name(value.type), value.shape) for value in session.get_inputs()}
    actual = {name: (dtype_name(array), list(array.shape)) for name, array in inputs.items()}
    if expected.keys() != actual.keys() or not all(
        dtype == expected[name][0] and fits_shape(shape, expected[name][1]) for name, (dtype, shape) in actual.items()
    ):
        raise InputError(
            f"{model} must have the inputs of the bundle, {_format_inputs(actual)}. Received: "
            f"{_format_inputs(expected)}. Pass an ONNX file with the same input names and dtypes."
        )


def _numpy_dtype_name(tensor_type: str) -> str:
    name = tensor_type.removeprefix("tensor(").removesuffix(")")
    return _NUMPY_DTYPE_NAMES.get(name, name)


def _format_inputs(inputs: Mapping[str, tuple[str, list[Any]]]) -> str:
    items = sorted(inputs.items())
    return ", ".join(f"`{name}` {dtype}[{', '.join(map(str, shape))}]" for name, (dtype, shape) in items)


def _summarize_timing(model: Path, rows: int, load: float, latencies: list[float], memory: Mapping[str, int]) -> Timing:
    p5, median, p95 = (float(value) for value in np.percentile(latencies, (5, 50, 95)))
    return Timing(
        model=str(model),
        file_size=model.stat().st_size,
        load=load * 1e3,
        runs=len(latencies),
        median=median * 1e3,
        p5=p5 * 1e3,
        p95=p95 * 1e3,
        rows_per_second=rows / median,
        peak_memory=memory["process"],
        model_memory=memory["model"],
    )


def _measure_peak_memory(model: Path, inputs: Arrays, provider: str, threads: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "inputs.npz")
        save_cases(file, [Case("bench", inputs, {}, {})])
        command = [sys.executable, "-P", peak_memory.__file__, str(model), str(file), provider, str(threads)]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        last_line = next((line for line in reversed(process.stderr.splitlines()) if line.strip()), "no message")
        raise ExportError(f"Cannot measure the memory of {model}, because it fails in a separate process: {last_line}")
    measured: dict[str, int] = json.loads(process.stdout.splitlines()[-1])
    return measured


def _count_rows(specs: Iterable[Spec], inputs: Arrays) -> int:
    """Return the size of the batch axis, or of the first axis of the first input that has one."""
    axes = [(spec.shape[0], inputs[spec.name].shape[0]) for spec in specs if spec.shape]
    return next((size for axis, size in axes if axis == "batch"), axes[0][1] if axes else 1)


def _compare_outputs(outputs: Arrays, other_outputs: Arrays) -> dict[str, float]:
    shared = outputs.keys() & other_outputs.keys()
    return {
        name: difference for name, difference in measure_differences(outputs, other_outputs).items() if name in shared
    }
