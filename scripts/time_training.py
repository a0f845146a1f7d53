"""Times training steps on this machine's device, through Keras's torch or JAX: `KERAS_BACKEND=torch time_training.py`.

Keras's own layers, ours, and what is nothing but projections around `keras.ops.dot_product_attention`, in float32 and
`mixed_float16`. Inputs lie on the device. Needs Keras and its backend, and neither TensorFlow nor onnxruntime.
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
from _models import _around, _seen, ours, theirs  # noqa: E402
from _plans import Plan, Shape  # noqa: E402
from keras import ops  # noqa: E402

BACKEND = keras.backend.backend()
CAUSAL = {"lengths": "", "causal": True}
SHAPES = (
    Shape(Plan("additive", 256), 8, 128),
    Shape(Plan("additive", 256), 2, 512),
    Shape(Plan("additive", 512), 16, 1024),
    Shape(Plan("multi-head", 64, 1), 8, 512),
    Shape(Plan("multi-head", 64, 1, **CAUSAL), 4, 4096),
    Shape(Plan("multi-head", 512, 8), 8, 512),
    Shape(Plan("multi-head", 512, 8, **CAUSAL), 4, 4096),
    Shape(Plan("block", 512, 8), 8, 512),
)
QUICK = (Shape(Plan("additive", 8), 2, 5), Shape(Plan("multi-head", 8, 2), 2, 5), Shape(Plan("block", 8, 2), 2, 5))
KERAS, OURS, ONE, ALONE = "Keras's layer", "ours", "ours, query_block_size=None", "dot_product_attention alone"
BLOCKS = (16, 64)
COLUMNS = ("size", "precision", "layers", "ms", "over Keras's", "MiB", "differs")


class Alone(keras.layers.Layer):
    """Projections around one operation of the backend."""

    def __init__(self, heads: int) -> None:  # noqa: D107
        super().__init__()
        self.heads = heads

    def build(self, queries_shape: Any, *_: Any) -> None:  # noqa: D102
        width = queries_shape[-1]
        self.dense = [keras.layers.Dense(width) for _ in range(4)]
        for each in self.dense:
            each.build((None, None, width))

    def call(  # noqa: D102 - as `MultiHeadAttention` is called
        self,
        queries: Any,
        keys: Any,
        values: Any,
        lengths: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        tensors = [dense(each) for dense, each in zip(self.dense, (queries, keys, values), strict=False)]
        heads = [ops.reshape(each, (*ops.shape(each)[:2], self.heads, -1)) for each in tensors]
        mask = None if lengths is None else ops.expand_dims(ops.expand_dims(_seen(keys, lengths), 1), 1)
        pooled = ops.dot_product_attention(*heads, mask=mask, is_causal=use_causal_mask)
        return self.dense[-1](ops.reshape(pooled, ops.shape(queries)))


def contestants(plan: Plan) -> Iterator[tuple[str, Callable[[], keras.Model]]]:
    """Yield what is timed, Keras's layer first."""
    yield KERAS, lambda: theirs(plan)
    yield OURS, lambda: ours(plan)
    if plan.kind == "additive":
        yield ONE, lambda: ours(plan, query_block_size=None)
        for rows in BLOCKS:
            yield f"ours, query_block_size={rows}", lambda rows=rows: ours(plan, query_block_size=rows)
    else:
        yield ALONE, lambda: _around(Alone(plan.H), plan)


def prepared(model: keras.Model, shape: Shape, given: argparse.Namespace) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return a step, which waits for the device, and the loss of the first and the memory of all so far."""
    model.compile(keras.optimizers.SGD(1e-4), "mse", jit_compile=BACKEND == "jax" or given.jit)
    inputs = [ops.convert_to_tensor(array) for array in shape.inputs().values()]
    size = (shape.B, shape.queries, shape.plan.D)
    target = ops.convert_to_tensor(np.random.default_rng(2).standard_normal(size, dtype="float32"))
    reset_memory()
    loss = float(model.train_on_batch(inputs, target))
    for _ in range(3):
        model.train_on_batch(inputs, target)
    return lambda: model.train_on_batch(inputs, target), {"MiB": peak_memory(), "loss": loss}


def medians(steps: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median milliseconds of each step, in rounds of one step of each: a slower second is one for all."""
    taken: dict[str, list[float]] = {label: [] for label in steps}
    began = time.perf_counter()
    rounds = 0
    while rounds < 10 or (rounds < 200 and time.perf_counter() - began < seconds * len(steps)):
        for label, step in steps.items():
            before = time.perf_counter()
            step()
            taken[label].append(time.perf_counter() - before)
        rounds += 1
    return {label: 1e3 * float(np.median(times)) for label, times in taken.items()}


def reset_memory() -> None:
    """Begin to count the memory of torch anew."""
    gc.collect()
    if BACKEND == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def peak_memory() -> float | None:
    """Return the MiB that torch had allocated at most; JAX counts none for a part of a process."""
    if BACKEND == "torch":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None
    return None


def main() -> None:
    """Print a table, and write it as JSON after each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all of it works")
    parser.add_argument("--seconds", type=float, default=0.6, help="how long each is timed")
    parser.add_argument("--jit", action="store_true", help="by torch.compile; JAX always compiles")
    parser.add_argument("--precision", action="append", help="a dtype policy, in place of both")
    parser.add_argument("--only", default="", help="sizes whose names hold this")
    parser.add_argument("--output", type=Path, default=Path("training.json"))
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for shape in (each for each in (QUICK if given.quick else SHAPES) if given.only in str(each)):
        for precision in given.precision or ("float32", "mixed_float16"):
            keras.config.set_dtype_policy(precision)
            found: dict[str, dict[str, Any]] = {}
            steps = {}
            for label, model_of in contestants(shape.plan):
                row = found[label] = {"size": str(shape), "precision": precision, "layers": label}
                try:
                    steps[label], measured = prepared(model_of(), shape, given)
                    row |= measured
                except Exception as error:  # noqa: BLE001 - such as no memory: a row says so
                    row["problem"] = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            times = medians(steps, given.seconds)
            for label, row in found.items():
                peer = found[KERAS]
                if label in times and KERAS in times:
                    row |= {"ms": times[label], "over Keras's": times[KERAS] / times[label]}
                    row["differs"] = abs(row["loss"] - peer["loss"]) / abs(peer["loss"])
                cells = [
                    f"{cell:.3g}" if isinstance(cell := row.get(column), float) else str(cell) for column in COLUMNS
                ]
                print("|", " | ".join(cells), "|", row.get("problem", ""), flush=True)
            rows += found.values()
        given.output.write_text(json.dumps({"backend": BACKEND, "machine": machine(), "rows": rows}, indent=1) + "\n")


def machine() -> dict[str, str]:
    """Return what the numbers depend on."""
    backend = __import__(BACKEND)
    gpu = subprocess.getoutput("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader")
    return {"device": gpu, BACKEND: backend.__version__, "keras": keras.__version__, "date": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    main()
