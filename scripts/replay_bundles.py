"""Replay and time bundles with NumPy and onnxruntime only: `replay_bundles.py FOLDER/*`.

The `verify.py` of a bundle replays the golden cases and checks that the provider computed all attention. Then the
bundle is timed on random inputs, and the outputs of LAYER-FORM are compared with LAYER-portable. A folder with only
`model.onnx` is timed without a check, on the inputs of LAYER-portable. Exit codes: 0 if all bundles passed, 1 if one
failed, 2 if none could run.
"""

import argparse
import json
import math
import multiprocessing
import platform
import runpy
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort

PLAIN = "-portable"
MAX_ERRORS = {"float32": 1e-4, "TF32": 2e-2, "float16": 2e-2}  # of the plain form's largest magnitude
COLUMNS = ("bundle", "outputs", "of_limit", "nodes", "size", "precision", "p10", "ms", "p90", "MiB", "problem")
Row = dict[str, Any]


def main() -> int:
    """Check each bundle in a worker process, so that a crash only fails one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", action="append", metavar="BxT", help="time a batch of B, all other axes of T")
    parser.add_argument("--tf32", action="store_true", help="time with TF32, which is off by default")
    parser.add_argument("--jobs", type=int, metavar="N", help="check N bundles at a time, without timing")
    parser.add_argument("--quick", action="store_true", help="time three runs, to check that everything works")
    parser.add_argument("--output", type=Path, default=Path("replay.json"), help="JSON file, written after each bundle")
    arguments = parser.parse_args()
    if f"{arguments.provider.upper()}ExecutionProvider" not in ort.get_available_providers():
        parser.exit(2, f"error: This onnxruntime has no {arguments.provider.upper()}ExecutionProvider.\n")
    rows: list[Row] = []
    machine_facts = describe_machine(arguments.provider)
    with tempfile.TemporaryDirectory() as arguments.scratch:
        # The plain form of a layer runs first, since the other forms are compared with its outputs.
        paths = sorted(arguments.bundles, key=lambda path: (path.name.rpartition("-")[0], PLAIN not in path.name))
        paths = [path for path in paths if not arguments.jobs or (path / "verify.py").exists()]
        pool = ProcessPoolExecutor(arguments.jobs or 1, multiprocessing.get_context("spawn"))
        for path, future in [(path, pool.submit(check_bundle, path, arguments)) for path in paths]:
            # This bundle or an earlier one has crashed the pool.
            if isinstance(future.exception(), BrokenProcessPool):
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as single_pool:
                    future = single_pool.submit(check_bundle, path, arguments)
            error = future.exception()
            rows.append({"bundle": path.name, "problem": str(error)} if error else future.result())
            arguments.output.write_text(json.dumps({"machine": machine_facts, "bundles": rows}, indent=1) + "\n")
            print(f"{path.name}: {rows[-1]['problem'] or 'passed'}", flush=True)
        pool.shutdown()
    print(f"\n{json.dumps(machine_facts)}\n\n| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    for table_row in (row | times for row in rows for times in row.get("times") or [{}]):
        cells = [table_row.get(column) for column in COLUMNS]
        print("|", *(f"{cell:.3g} |" if isinstance(cell, float) else f"{cell or ''} |" for cell in cells))
    return int(any(row["problem"] for row in rows))


def describe_machine(provider: str) -> Row:
    """Return the date, the device and the versions that times depend on."""
    gpu, processor = "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", "grep -m1 name /proc/cpuinfo"
    device = subprocess.getoutput(gpu if provider == "cuda" else processor)
    versions = {"onnxruntime": ort.__version__, "CUDA": getattr(ort, "cuda_version", ""), "numpy": np.__version__}
    return {"date": time.strftime("%Y-%m-%d"), "device": device, "system": platform.platform()} | versions


def check_bundle(path: Path, arguments: argparse.Namespace) -> Row:
    """Return the row of a bundle; after an error, the results so far and the `problem`."""
    row: Row = {"bundle": path.name, "problem": None, "times": []}
    try:
        has_cases = (path / "verify.py").exists()
        checked_path = path if has_cases else path.with_name(path.name.rpartition("-")[0] + PLAIN)
        verify = SimpleNamespace(**runpy.run_path(str(checked_path / "verify.py")))
        manifest, cases = verify.read_manifest(checked_path), verify.load_cases(checked_path / verify.CASES_FILE)
        bundle = SimpleNamespace(path=path, verify=verify, manifest=manifest, cases=cases)
        if has_cases:
            row |= replay_cases(bundle, arguments)
        for size in [] if arguments.jobs else arguments.size or [""]:
            row["times"].append(time_runs(bundle, arguments, size))
    except Exception as error:  # noqa: BLE001 - every error becomes a row
        row["problem"] = " ".join(str(error).split())[:400] or type(error).__name__
    return row


def replay_cases(bundle: Any, arguments: argparse.Namespace) -> Row:
    """Run the golden cases; compare the outputs, and check that the provider computed all attention nodes."""
    verify, file = bundle.verify, bundle.path / bundle.verify.MODEL
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling, options.profile_file_prefix = True, f"{arguments.scratch}/{bundle.path.name}"
    session = verify.open_session(file, arguments.provider, options)
    runs = [(case, verify.run_session(session, case.inputs)) for case in bundle.cases]
    profile, tolerance = Path(session.end_profiling()), bundle.manifest["parity"]["tolerance"]
    factor = verify.PROVIDERS[arguments.provider].limit_factor
    rows = [row for run in runs for row in verify.compare(*run, tolerance, factor)]
    for row in rows:
        if not row["passed"]:
            text = f"`{row['name']}` {row['problem']} in case `{row['case']}`"
            raise ValueError(f"{text}: {row['of_limit']:.2g} times the limit")
    nodes = verify.check_placement(profile, arguments.provider)
    # A layer that was not lowered has no attention nodes.
    if not nodes and any(not layer["form"].startswith("plain operators:") for layer in bundle.manifest["layers"]):
        raise ValueError("The profile names no node of an attention layer.")
    return {"outputs": len(rows), "of_limit": max(row["of_limit"] for row in rows), "nodes": nodes}


def time_runs(bundle: Any, arguments: argparse.Namespace, size: str) -> Row:
    """Time runs with inputs and outputs on the device, and compare the outputs with the plain form's."""
    options = {"use_tf32": str(int(arguments.tf32)), "arena_extend_strategy": "kSameAsRequested"}
    providers, cuda = bundle.verify.PROVIDERS, bundle.verify.PROVIDERS["cuda"]
    providers["cuda"] = cuda._replace(options={**cuda.options, **options})
    initial_memory = measure_device_memory(arguments.provider)
    session = bundle.verify.open_session(bundle.path / bundle.verify.MODEL, arguments.provider)
    binding, times, names = session.io_binding(), [], [output.name for output in session.get_outputs()]
    input_names = {port.name for port in session.get_inputs()}
    for name, array in draw_inputs(bundle, size).items():
        if name in input_names:
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, arguments.provider, 0))
    for name in names:
        binding.bind_output(name, arguments.provider)
    warm_up, min_runs, seconds = (1, 3, 0) if arguments.quick else (5, 20, 1)
    while len(times) < warm_up + 3 or (sum(times) < seconds and len(times) < warm_up + min_runs):
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        times.append(time.perf_counter() - start)
    precision = "TF32" if arguments.tf32 and bundle.manifest["precision"] == "float32" else bundle.manifest["precision"]
    outputs = binding.copy_outputs_to_cpu()
    reference_file = Path(arguments.scratch, f"{bundle.path.name.rpartition('-')[0]} {size}.npz")
    if bundle.path.name.endswith(PLAIN):
        np.savez(reference_file, *outputs)
    references = np.load(reference_file).values() if reference_file.exists() else []
    for name, array, expected in zip(names, outputs, references, strict=False):
        error = np.max(np.abs(array - 1.0 * expected), initial=0) / np.max(np.abs(expected), initial=1e-30)
        if not error <= MAX_ERRORS.get(precision, math.inf):  # `not`: an error of NaN fails too
            raise ValueError(f"`{name}` differs from the plain form by {error:.1e} of its largest magnitude")
    p10, median, p90 = (1e3 * np.percentile(times[warm_up:], [10, 50, 90])).tolist()
    used_memory = measure_device_memory(arguments.provider) - initial_memory
    return {"size": size, "precision": precision, "p10": p10, "ms": median, "p90": p90, "MiB": used_memory}


def measure_device_memory(provider: str) -> int:
    """Return the used memory of the first GPU in MiB; 0 if unknown."""
    query = "nvidia-smi --id=0 --query-gpu=memory.used --format=csv,noheader,nounits"
    reply = subprocess.getoutput(query) if provider == "cuda" else ""
    return int(reply) if reply.isdecimal() else 0


def draw_inputs(bundle: Any, size: str) -> Row:
    """Draw inputs: normal floats, lengths spread evenly from 1 to the axis, other integers of a golden case."""
    golden_inputs = max(bundle.cases, key=lambda case: sum(array.size for array in case.inputs.values())).inputs
    specs, counts, rng = bundle.manifest["inputs"], bundle.manifest["counts"], np.random.default_rng(0)
    axes = dict(pair for spec in specs for pair in zip(spec["shape"], golden_inputs[spec["name"]].shape, strict=True))
    if size:
        B, T = map(int, size.split("x"))
        axes = {axis: axis if isinstance(axis, int) else B if axis == "batch" else T for axis in axes}
    arrays = {}
    for name, shape in ((spec["name"], [axes[axis] for axis in spec["shape"]]) for spec in specs):
        is_float = golden_inputs[name].dtype.kind == "f"
        array = rng.standard_normal(shape) if is_float else np.resize(golden_inputs[name], shape)
        if name in counts:
            array = np.linspace(1, axes[counts[name]], math.prod(shape)).reshape(shape)
        arrays[name] = array.astype(golden_inputs[name].dtype)
    return arrays


if __name__ == "__main__":
    sys.exit(main())
