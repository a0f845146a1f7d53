"""Benchmark a bundle: latency, throughput and peak memory, optionally against another ONNX file."""

from __future__ import annotations

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
from .._format.case_writing import save_cases
from .._format.input_arrays import checked_inputs
from .._format.interruptible_session import check_provider, open_session
from .._format.manifest import Spec
from .._format.names import MODEL, Arrays, Case, dtype_name
from .._format.parity_report import differences, finite
from .._format.providers import short_name
from .._latency import timed_in_turns
from .._machine import environment, usable_cpus
from .._processes import peak_memory
from .._progress import Progress
from .bundle import Bundle, load_bundle
from .untrusted_input import golden_cases

SECONDS = 3.0
WARM_UP = 2  # after one that gives the outputs
FEWEST_RUNS, MOST_RUNS = 5, 100_000
_TENSOR_TYPES = {"float": "float32", "double": "float64"}  # onnxruntime's names, where they are not NumPy's


@dataclass(frozen=True)
class Timing:
    """What was measured of one model. Times are in milliseconds, memory in bytes.

    Attributes:
        model: The ONNX file.
        file_size: Its size, without external data.
        load: Opening the session.
        runs: How many runs were timed.
        median: Of the latency of a run; `p5` and `p95` are its percentiles.
        p5: See `median`.
        p95: See `median`.
        rows_per_second: Rows of a batch over the median.
        peak_memory: Highest resident memory of a fresh process that loads the model and runs it.
        model_memory: How much of that came with loading and running.
    """

    model: str
    file_size: int
    load: float
    runs: int
    median: float
    p5: float
    p95: float
    rows_per_second: float
    peak_memory: int
    model_memory: int


@dataclass(frozen=True)
class Bench:
    """The result of a bench: one timing, or two and how they compare.

    Attributes:
        bundle: The bundle's folder.
        inputs: Where the inputs come from.
        shapes: Their shapes by name.
        rows: How many rows they hold.
        provider: Where the models ran.
        threads: How many threads a run uses.
        environment: Versions and processor.
        timings: The bundle's model, then the other one.
        ratio: The other model's median over the bundle's; above 1 the bundle is faster.
        differences: Largest absolute difference of each output that both models have.
    """

    bundle: str
    inputs: str
    shapes: dict[str, tuple[int, ...]]
    rows: int
    provider: str
    threads: int
    environment: dict[str, str]
    timings: tuple[Timing, ...]
    ratio: float | None = None
    differences: dict[str, float] | None = None

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(finite(asdict(self)), indent=2)


def bench_bundle(
    path: str | Path,
    *,
    against: str | Path | None = None,
    inputs: Mapping[str, Any] | None = None,
    provider: str = "cpu",
    threads: int | None = None,
    seconds: float = SECONDS,
    step: Progress = lambda _: None,
) -> Bench:
    """Time a bundle's ONNX model and, run by run in turns with it, another one.

    Args:
        path: The bundle.
        against: Another ONNX file with the same inputs.
        inputs: Arrays by input name; `None` takes the largest golden case.
        provider: Where to run, as in `export_model`.
        threads: How many threads a run uses; `None` for as many as this process may run on.
        seconds: How long to time, all models together. A few runs are made however long they take.
        step: Called with the name of each step.

    Raises:
        BundleError: As for `load_bundle`, or the other file cannot be loaded.
        InputError: The inputs do not fit, or the other model takes others.
        ProviderError: The provider is absent, or is not the one that ran.
        ExportError: An argument is out of range, or a model fails on the inputs.
    """
    threads = usable_cpus() if threads is None else threads
    if threads < 1 or not 0 < seconds < float("inf"):
        raise ExportError(f"`threads` and `seconds` must be above 0. Received: {threads} and {seconds}.")
    step("Checking the bundle")
    provider = short_name(provider)
    check_provider(provider)  # imports onnxruntime, which is no part of the time to load
    bundle = load_bundle(path)
    name, arrays = _chosen_inputs(bundle, inputs)
    models = [bundle.path / MODEL]
    if against is not None:
        models.append(Path(against))
        if not models[1].is_file():
            raise InputError(f"There is no file {against}.")

    sessions, loads = [], []
    for model in models:
        step(f"Loading {model}")
        start = time.perf_counter()
        sessions.append(open_session(model, provider, threads=threads))
        loads.append(time.perf_counter() - start)
    if against is not None:
        _check_same_inputs(arrays, sessions[1], models[1])
    step(f"Timing for {seconds:g} seconds")
    outputs, latencies = timed_in_turns(sessions, arrays, seconds, warm_up=WARM_UP, fewest=FEWEST_RUNS, most=MOST_RUNS)
    memory = []
    for model in models:
        step(f"Measuring the peak memory of {model}")
        memory.append(_peak_memory(model, arrays, provider, threads))

    rows = _rows(bundle.entries.inputs, arrays)
    timings = tuple(
        _timing(model, rows, load, taken, held)
        for model, load, taken, held in zip(models, loads, latencies, memory, strict=True)
    )
    return Bench(
        bundle=str(bundle.path),
        inputs=name,
        shapes={key: array.shape for key, array in arrays.items()},
        rows=rows,
        provider=provider,
        threads=threads,
        environment=environment(),
        timings=timings,
        ratio=timings[1].median / timings[0].median if against else None,
        differences=_differences(*outputs) if against else None,
    )


def _chosen_inputs(bundle: Bundle, given: Mapping[str, Any] | None) -> tuple[str, Arrays]:
    """Return the inputs to run on, and what to call them."""
    if given is not None:
        return "given", checked_inputs(bundle.entries, given)
    cases = [(case.name, case.inputs) for case in golden_cases(bundle.path, bundle.entries)]
    # poisoned padding or all zeros may be faster or slower than numbers are
    plain = [case for case in cases if all(map(_is_plain, case[1].values()))]
    case, arrays = max(plain or cases, key=lambda named: sum(array.nbytes for array in named[1].values()))
    return f"golden case `{case}`", arrays


def _is_plain(array: np.ndarray) -> bool:
    return bool(np.any(array) and (array.dtype == object or np.all(np.isfinite(array))))


def _check_same_inputs(inputs: Arrays, session: Any, model: Path) -> None:
    found = {value.name: (_dtype(value.type), value.shape) for value in session.get_inputs()}
    wanted = {name: (dtype_name(array), list(array.shape)) for name, array in inputs.items()}
    if found.keys() != wanted.keys() or not all(_fits(wanted[name], found[name]) for name in found):
        raise InputError(
            f"{model} must take the bundle's inputs, {_list(wanted)}. It takes {_list(found)}. "
            "Compare with a file of the same input names and dtypes."
        )


def _fits(given: tuple[str, list[int]], taken: tuple[str, list[Any]]) -> bool:
    sizes = zip(given[1], taken[1], strict=False)
    same_rank = len(given[1]) == len(taken[1])
    return given[0] == taken[0] and same_rank and all(not isinstance(want, int) or have == want for have, want in sizes)


def _dtype(tensor_type: str) -> str:
    name = tensor_type.removeprefix("tensor(").removesuffix(")")
    return _TENSOR_TYPES.get(name, name)


def _list(inputs: Mapping[str, tuple[str, list[Any]]]) -> str:
    return ", ".join(
        f"`{name}` {dtype}[{', '.join(str(size) for size in shape)}]" for name, (dtype, shape) in sorted(inputs.items())
    )


def _timing(model: Path, rows: int, load: float, latencies: list[float], memory: Mapping[str, int]) -> Timing:
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


def _peak_memory(model: Path, inputs: Arrays, provider: str, threads: int) -> dict[str, int]:
    script = Path(peak_memory.__file__)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "inputs.npz")
        save_cases(file, [Case("bench", inputs, {}, {})])
        command = [sys.executable, "-P", str(script), str(model), str(file), provider, str(threads)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
        raise ExportError(f"{model} ran, but not in a fresh process that measures its memory: {last}")
    measured: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _rows(specs: Iterable[Spec], inputs: Arrays) -> int:
    """Return the size of the batch axis, or of the first axis of the first input that has one."""
    axes = [(spec.shape[0], inputs[spec.name].shape[0]) for spec in specs if spec.shape]
    return next((size for axis, size in axes if axis == "batch"), axes[0][1] if axes else 1)


def _differences(ours: Arrays, theirs: Arrays) -> dict[str, float]:
    shared = [name for name in ours if name in theirs]
    return differences({name: ours[name] for name in shared}, {name: theirs[name] for name in shared})
