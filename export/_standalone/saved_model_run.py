"""Run golden cases through a SavedModel: `python saved_model_run.py`, told by a line of JSON on standard input.

The line is `[SAVED_MODEL, CASES.npz, RESULTS.npz, INPUTS, OUTPUTS]`, the last two the tensors of its signature by name;
the process ends, undone, when standard input does. Started by `_tracing/fresh_process.py` as a process of its own.
Keras and this project are made impossible to import first: what runs here runs wherever there is TensorFlow.
"""

import contextlib
import importlib.util
import json
import os
import runpy
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Run = Callable[[Mapping[str, Any]], dict[str, Any]]

for name in ("keras", "keras_attn", "keras_attn_export"):
    sys.modules[name] = None  # type: ignore[assignment]  # the import system's own way to say: not importable
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # which would round what is multiplied to 10 bits on a GPU


def main(saved_model: str, cases: str, results: str, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    """Load, run every case, write the outputs: by the C interface of TensorFlow, or where that fails from Python."""
    verify = runpy.run_path(str(HERE / "verify.py"))  # needs no package around it

    def found(run: Run) -> list[Any]:
        answers = ((case.name, run(case.inputs)) for case in verify["load_cases"](Path(cases)))
        decoded = verify["decoded"]
        return [verify["Case"](name, {}, {each: decoded(array) for each, array in of.items()}) for name, of in answers]

    try:
        in_c = runpy.run_path(str(HERE / "saved_model_in_c.py"))["SavedModel"](Path(saved_model), inputs, outputs)
        with contextlib.closing(in_c):
            done = found(in_c.run)
    except Exception:  # noqa: BLE001 - no library, a dtype, a custom operator: what is wrong with the model Python says
        done = found(_in_python(saved_model))
    verify["save_cases"](Path(results), done)


def _in_python(saved_model: str) -> Run:
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)  # the process that waits has memory of it too
    try:
        loaded = tf.saved_model.load(saved_model)
    except Exception as error:
        if "Op type not registered" not in str(error):
            raise
        _load_operators_on_text(tf)
        loaded = tf.saved_model.load(saved_model)
    serve = loaded.signatures["serving_default"]

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        tensors = serve(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    return run


def _load_operators_on_text(tf: Any) -> None:
    """Load what TensorFlow Text brings along, if it is there: to import it is to import Keras."""
    found = importlib.util.find_spec("tensorflow_text")
    for folder in found.submodule_search_locations or () if found else ():
        for library in Path(folder).glob("python/ops/*.so"):
            tf.load_op_library(str(library))


def _end_with_the_other() -> None:
    """Wait until the process that asks is gone, which closes the pipe, and end this one."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter shuts down
    os._exit(1)


if __name__ == "__main__":
    if asked := sys.stdin.readline():
        threading.Thread(target=_end_with_the_other, daemon=True).start()
        main(*json.loads(asked))
