"""Run golden cases through a SavedModel: `python saved_model_run.py SAVED_MODEL CASES.npz RESULTS.npz`.

Started by `_tracing/saved_model.py` as a process of its own. Keras and this project are made impossible to import
first: what runs here runs wherever there is TensorFlow.
"""

import os
import runpy
import sys
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
        outputs.append(case._replace(inputs={}, outputs={name: tensor.numpy() for name, tensor in tensors.items()}))
    verify["save_cases"](Path(results), outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
