"""Run golden cases through a SavedModel: `python saved_model_run.py`, told by a line of JSON on standard input.

The line is `[SAVED_MODEL, CASES.npz, RESULTS.npz]`; the process ends, undone, when standard input does. Started by
`_tracing/fresh_process.py` as a process of its own. Keras and this project are made impossible to import first: what
runs here runs wherever there is TensorFlow.
"""

import json
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

for name in ("keras", "keras_attn", "keras_attn_export"):
    sys.modules[name] = None  # type: ignore[assignment]  # the import system's own way to say: not importable
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402 - the imports above must be blocked before it

tf.config.experimental.enable_tensor_float_32_execution(False)  # which would round what is multiplied to 10 bits
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)  # the process that waits has memory of it too


def main(saved_model: str, cases: str, results: str) -> None:
    """Load, run every case, write the outputs."""
    verify = runpy.run_path(str(Path(__file__).with_name("verify.py")))  # needs no package around it
    loaded = tf.saved_model.load(saved_model)
    serve = loaded.signatures["serving_default"]
    outputs: list[Any] = []
    for case in verify["load_cases"](Path(cases)):
        tensors = serve(**{name: tf.constant(value) for name, value in case.inputs.items()})
        outputs.append(verify["Case"](case.name, {}, {name: tensor.numpy() for name, tensor in tensors.items()}))
    verify["save_cases"](Path(results), outputs)


def _end_with_the_other() -> None:
    """Wait until the process that asks is gone, which closes the pipe, and end this one."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter shuts down
    os._exit(1)


if __name__ == "__main__":
    if asked := sys.stdin.readline():
        threading.Thread(target=_end_with_the_other, daemon=True).start()
        main(*json.loads(asked))
