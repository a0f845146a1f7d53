"""Time training steps on a GPU with Keras on torch or JAX: `KERAS_BACKEND=torch time_training.py`.

Layers of Keras, layers of this package ("ours"), and projections around `keras.ops.dot_product_attention`, in float32
and `mixed_float16`, with inputs on the device. Needs Keras and its backend, but neither TensorFlow nor onnxruntime.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import keras  # noqa: E402
import numpy as np  # noqa: E402
from _models import build_ours, build_theirs, make_key_mask, wrap_layer  # noqa: E402
from _plans import Plan, PlannedCall  # noqa: E402
from keras import ops  # noqa: E402

BACKEND = keras.backend.backend()
CAUSAL = {"length_kind": "", "causal": True}
CALLS = (
    PlannedCall(Plan("additive", 256), 8, 128),
    PlannedCall(Plan("additive", 256), 2, 512),
    PlannedCall(Plan("additive", 512), 16, 1024),
    PlannedCall(Plan("multi-head", 64, 1), 8, 512),
    PlannedCall(Plan("multi-head", 64, 1, **CAUSAL), 4, 4096),
    PlannedCall(Plan("multi-head", 512, 8), 8, 512),
    PlannedCall(Plan("multi-head", 512, 8, **CAUSAL), 4, 4096),
    PlannedCall(Plan("block", 512, 8), 8, 512),
)
QUICK_CALLS = (
    PlannedCall(Plan("additive", 8), 2, 5),
    PlannedCall(Plan("multi-head", 8, 2), 2, 5),
    PlannedCall(Plan("block", 8, 2), 2, 5),
)
KERAS, OURS, UNBLOCKED = "Keras's layer", "ours", "ours, query_block_size=None"
OPERATION = "dot_product_attention alone"
BLOCK_SIZES = (16, 64)
COLUMNS = ("size", "precision", "layers", "ms", "over Keras's", "MiB", "differs")


class OperationAttention(keras.layers.Layer):
    """Projections around the attention operation of the backend."""

    def __init__(self, heads: int) -> None:  # noqa: D107
        super().__init__()
        self.heads = heads

    def build(self, queries_shape: Any, *_: Any) -> None:  # noqa: D102
        width = queries_shape[-1]
        self.dense = [keras.layers.Dense(width) for _ in range(4)]
        for dense in self.dense:
            dense.build((None, None, width))

    def call(  # noqa: D102 - as `MultiHeadAttention` is called
        self,
        queries: Any,
        keys: Any,
        values: Any,
        lengths: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        tensors = [dense(tensor) for dense, tensor in zip(self.dense, (queries, keys, values), strict=False)]
        heads = [ops.reshape(tensor, (*ops.shape(tensor)[:2], self.heads, -1)) for tensor in tensors]
        mask = None if lengths is None else ops.expand_dims(ops.expand_dims(make_key_mask(keys, lengths), 1), 1)
        pooled = ops.dot_product_attention(*heads, mask=mask, is_causal=use_causal_mask)
        return self.dense[-1](ops.reshape(pooled, ops.shape(queries)))


def list_contestants(plan: Plan) -> Iterator[tuple[str, Callable[[], keras.Model]]]:
    """Yield labels and builders of the models to time, Keras's layer first."""
    yield KERAS, lambda: build_theirs(plan)
    yield OURS, lambda: build_ours(plan)
    if plan.kind == "additive":
        yield UNBLOCKED, lambda: build_ours(plan, query_block_size=None)
        for rows in BLOCK_SIZES:
            yield f"ours, query_block_size={rows}", lambda rows=rows: build_ours(plan, query_block_size=rows)
    else:
        yield OPERATION, lambda: wrap_layer(OperationAttention(plan.H), plan)


def prepare_step(model: keras.Model, call: PlannedCall, jit: bool) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return a training step that waits for the device, with the loss of the first step and the peak memory."""
    model.compile(keras.optimizers.SGD(1e-4), "mse", jit_compile=BACKEND == "jax" or jit)
    inputs = [ops.convert_to_tensor(array) for array in call.make_inputs().values()]
    size = (call.B, call.query_count, call.plan.D)
    target = ops.convert_to_tensor(np.random.default_rng(2).standard_normal(size, dtype="float32"))
    reset_memory()
    loss = float(model.train_on_batch(inputs, target))
    for _ in range(3):
        model.train_on_batch(inputs, target)
    return lambda: model.train_on_batch(inputs, target), {"MiB": measure_peak_memory(), "loss": loss}


def time_steps(steps: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median milliseconds of each step; steps take turns, so that a slow second affects all of them."""
    times_by_label: dict[str, list[float]] = {label: [] for label in steps}
    start = time.perf_counter()
    rounds = 0
    while rounds < 10 or (rounds < 200 and time.perf_counter() - start < seconds * len(steps)):
        for label, step in steps.items():
            step_start = time.perf_counter()
            step()
            times_by_label[label].append(time.perf_counter() - step_start)
        rounds += 1
    return {label: 1e3 * float(np.median(times)) for label, times in times_by_label.items()}


def reset_memory() -> None:
    """Reset the peak memory of torch."""
    gc.collect()
    if BACKEND == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def measure_peak_memory() -> float | None:
    """Return the peak memory of torch in MiB; None for JAX, which cannot reset its peak."""
    if BACKEND == "torch":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None
    return None


def main() -> None:
    """Print a table, and write the results as JSON after each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that everything works")
    parser.add_argument("--seconds", type=float, default=0.6, help="seconds of timing for each model")
    parser.add_argument("--jit", action="store_true", help="use torch.compile; JAX always compiles")
    parser.add_argument("--precision", action="append", help="a dtype policy instead of both; repeatable")
    parser.add_argument("--only", default="", help="only sizes whose name contains this text")
    parser.add_argument("--output", type=Path, default=Path("training.json"))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    calls = QUICK_CALLS if arguments.quick else CALLS
    for call in (call for call in calls if arguments.only in str(call)):
        for precision in arguments.precision or ("float32", "mixed_float16"):
            keras.config.set_dtype_policy(precision)
            rows_by_label: dict[str, dict[str, Any]] = {}
            steps = {}
            for label, build_model in list_contestants(call.plan):
                row = rows_by_label[label] = {"size": str(call), "precision": precision, "layers": label}
                try:
                    steps[label], measurements = prepare_step(build_model(), call, arguments.jit)
                    row |= measurements
                except Exception as error:  # noqa: BLE001 - such as a lack of memory, which becomes a row
                    row["problem"] = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            times = time_steps(steps, arguments.seconds)
            for label, row in rows_by_label.items():
                peer = rows_by_label[KERAS]
                if label in times and KERAS in times:
                    row |= {"ms": times[label], "over Keras's": times[KERAS] / times[label]}
                    row["differs"] = abs(row["loss"] - peer["loss"]) / abs(peer["loss"])
                cells = [
                    f"{cell:.3g}" if isinstance(cell := row.get(column), float) else str(cell) for column in COLUMNS
                ]
                print("|", " | ".join(cells), "|", row.get("problem", ""), flush=True)
            rows += rows_by_label.values()
        results = {"backend": BACKEND, "machine": describe_machine(), "rows": rows}
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


def describe_machine() -> dict[str, str]:
    """Return the device, the versions and the date that times depend on."""
    backend = __import__(BACKEND)
    gpu = subprocess.getoutput("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader")
    return {"device": gpu, BACKEND: backend.__version__, "keras": keras.__version__, "date": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    main()
