"""Replays and times bundles, where nothing but numpy and onnxruntime is installed: `replay_bundles.py FOLDER/*`.

Each is held to its golden cases by the `verify.py` that it carries, and its attention to the provider. Then it is timed
on random inputs, where LAYER-FORM is held to LAYER-portable; a folder with nothing but `model.onnx` is timed alone,
with the inputs of LAYER-portable. The exit code is 0 when everything passed, 1 when something did not, and 2 when
nothing could be run.
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
LIMITS = {"float32": 1e-4, "TF32": 2e-2, "float16": 2e-2}  # beside the plain form, of the largest number of an output
COLUMNS = ("bundle", "outputs", "of_limit", "nodes", "size", "precision", "p10", "ms", "p90", "MiB", "problem")
Row = dict[str, Any]


def main() -> int:
    """Check each bundle in another process: one that breaks it is a row, and the others go on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", action="append", metavar="BxT", help="time a batch of B, all other axes of T")
    parser.add_argument("--tf32", action="store_true", help="time with TF32, which is off else")
    parser.add_argument("--jobs", type=int, metavar="N", help="check N bundles at a time, and time none")
    parser.add_argument("--quick", action="store_true", help="time three runs, to see that all of it works")
    parser.add_argument("--output", type=Path, default=Path("replay.json"), help="written anew after each bundle")
    given = parser.parse_args()
    if f"{given.provider.upper()}ExecutionProvider" not in ort.get_available_providers():
        parser.exit(2, f"error: This onnxruntime has no {given.provider.upper()}ExecutionProvider.\n")
    rows: list[Row] = []
    about = machine(given.provider)
    with tempfile.TemporaryDirectory() as given.scratch:
        paths = sorted(given.bundles, key=lambda path: (path.name.rpartition("-")[0], PLAIN not in path.name))
        paths = [path for path in paths if not given.jobs or (path / "verify.py").exists()]
        pool = ProcessPoolExecutor(given.jobs or 1, multiprocessing.get_context("spawn"))
        for path, done in [(path, pool.submit(checked, path, given)) for path in paths]:
            if isinstance(done.exception(), BrokenProcessPool):  # by this one, or by one before it
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
                    done = own.submit(checked, path, given)
            error = done.exception()
            rows.append({"bundle": path.name, "problem": str(error)} if error else done.result())
            given.output.write_text(json.dumps({"machine": about, "bundles": rows}, indent=1) + "\n")
            print(f"{path.name}: {rows[-1]['problem'] or 'passed'}", flush=True)
        pool.shutdown()
    print(f"\n{json.dumps(about)}\n\n| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    for told in (row | each for row in rows for each in row.get("times") or [{}]):
        cells = [told.get(column) for column in COLUMNS]
        print("|", *(f"{cell:.3g} |" if isinstance(cell, float) else f"{cell or ''} |" for cell in cells))
    return int(any(row["problem"] for row in rows))


def machine(provider: str) -> Row:
    """Return what the numbers depend on."""
    gpu, processor = "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", "grep -m1 name /proc/cpuinfo"
    device = subprocess.getoutput(gpu if provider == "cuda" else processor)
    versions = {"onnxruntime": ort.__version__, "CUDA": getattr(ort, "cuda_version", ""), "numpy": np.__version__}
    return {"date": time.strftime("%Y-%m-%d"), "device": device, "system": platform.platform()} | versions


def checked(path: Path, given: argparse.Namespace) -> Row:
    """Return the row of a bundle, up to what went wrong."""
    row: Row = {"bundle": path.name, "problem": None, "times": []}
    try:
        has_cases = (path / "verify.py").exists()
        whole = path if has_cases else path.with_name(path.name.rpartition("-")[0] + PLAIN)
        verify = SimpleNamespace(**runpy.run_path(str(whole / "verify.py")))
        manifest, cases = verify.read_manifest(whole), verify.load_cases(whole / verify.CASES)
        bundle = SimpleNamespace(path=path, verify=verify, manifest=manifest, cases=cases)
        if has_cases:
            row |= replayed(bundle, given)
        for size in [] if given.jobs else given.size or [""]:
            row["times"].append(timed(bundle, given, size))
    except Exception as error:  # noqa: BLE001 - whatever fails is a row
        row["problem"] = " ".join(str(error).split())[:400] or type(error).__name__
    return row


def replayed(bundle: Any, given: argparse.Namespace) -> Row:
    """Run the golden cases, and hold outputs and places of nodes to what they must be."""
    verify, file = bundle.verify, bundle.path / bundle.verify.MODEL
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling, options.profile_file_prefix = True, f"{given.scratch}/{bundle.path.name}"
    session = verify.open_session(file, given.provider, options)
    runs = [(case, verify.run_session(session, case.inputs)) for case in bundle.cases]
    profile, tolerance = Path(session.end_profiling()), bundle.manifest["parity"]["tolerance"]
    factor = verify.PROVIDERS[given.provider].limit_factor
    rows = [row for run in runs for row in verify.compare(*run, tolerance, factor)]
    for row in rows:
        if not row["passed"]:
            told = f"`{row['name']}` {row['problem']} in case `{row['case']}`"
            raise ValueError(f"{told}: {row['of_limit']:.2g} times what is allowed")
    nodes = verify.check_placement(profile, given.provider)
    # of a layer that handed no maths to the export none is known
    if not nodes and any(not each["form"].startswith("plain operators:") for each in bundle.manifest["layers"]):
        raise ValueError("The profile names no node of an attention layer.")
    return {"outputs": len(rows), "of_limit": max(row["of_limit"] for row in rows), "nodes": nodes}


def timed(bundle: Any, given: argparse.Namespace, size: str) -> Row:
    """Time runs whose inputs and outputs lie on the device; what they give is held to what the plain form gave."""
    options = {"use_tf32": str(int(given.tf32)), "arena_extend_strategy": "kSameAsRequested"}
    known, cuda = bundle.verify.PROVIDERS, bundle.verify.PROVIDERS["cuda"]
    known["cuda"] = cuda._replace(options={**cuda.options, **options})
    before_any = device_memory(given.provider)
    session = bundle.verify.open_session(bundle.path / bundle.verify.MODEL, given.provider)
    binding, taken, names = session.io_binding(), [], [output.name for output in session.get_outputs()]
    read = {each.name for each in session.get_inputs()}
    for name, array in drawn(bundle, size).items():
        if name in read:
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, given.provider, 0))
    for name in names:
        binding.bind_output(name, given.provider)
    warm_up, least, seconds = (1, 3, 0) if given.quick else (5, 20, 1)
    while len(taken) < warm_up + 3 or (sum(taken) < seconds and len(taken) < warm_up + least):
        before = time.perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        taken.append(time.perf_counter() - before)
    precision = "TF32" if given.tf32 and bundle.manifest["precision"] == "float32" else bundle.manifest["precision"]
    outputs = binding.copy_outputs_to_cpu()
    plain = Path(given.scratch, f"{bundle.path.name.rpartition('-')[0]} {size}.npz")
    if bundle.path.name.endswith(PLAIN):
        np.savez(plain, *outputs)
    for name, array, expected in zip(names, outputs, np.load(plain).values() if plain.exists() else [], strict=False):
        off = np.max(np.abs(array - 1.0 * expected), initial=0) / np.max(np.abs(expected), initial=1e-30)
        if not off <= LIMITS.get(precision, math.inf):  # as of NaN
            raise ValueError(f"`{name}` differs from that of the plain form by {off:.1e} of its largest number")
    p10, median, p90 = (1e3 * np.percentile(taken[warm_up:], [10, 50, 90])).tolist()
    used = device_memory(given.provider) - before_any
    return {"size": size, "precision": precision, "p10": p10, "ms": median, "p90": p90, "MiB": used}


def device_memory(provider: str) -> int:
    """Return the MiB of the first GPU that are taken, 0 where nothing tells."""
    query = "nvidia-smi --id=0 --query-gpu=memory.used --format=csv,noheader,nounits"
    told = subprocess.getoutput(query) if provider == "cuda" else ""
    return int(told) if told.isdecimal() else 0


def drawn(bundle: Any, size: str) -> Row:
    """Return standard normal numbers; lengths spread evenly from 1 to all; of all else what a golden case has."""
    golden = max(bundle.cases, key=lambda case: sum(array.size for array in case.inputs.values())).inputs
    specs, counts, rng = bundle.manifest["inputs"], bundle.manifest["counts"], np.random.default_rng(0)
    axes = dict(pair for spec in specs for pair in zip(spec["shape"], golden[spec["name"]].shape, strict=True))
    if size:
        B, T = map(int, size.split("x"))
        axes = {axis: axis if isinstance(axis, int) else B if axis == "batch" else T for axis in axes}
    arrays = {}
    for name, shape in ((spec["name"], [axes[axis] for axis in spec["shape"]]) for spec in specs):
        array = rng.standard_normal(shape) if golden[name].dtype.kind == "f" else np.resize(golden[name], shape)
        if name in counts:
            array = np.linspace(1, axes[counts[name]], math.prod(shape)).reshape(shape)
        arrays[name] = array.astype(golden[name].dtype)
    return arrays


if __name__ == "__main__":
    sys.exit(main())
