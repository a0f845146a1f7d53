"""Script: run golden cases through a SavedModel: `python saved_model_run.py`, with one line of JSON on standard input.

The line is `[SAVED_MODEL, CASES.npz, RESULTS.npz, INPUTS, OUTPUTS]`; the last two map names of inputs and outputs to
tensors of the signature. The process ends without results when standard input ends. `_tracing/saved_model_worker.py`
starts it. Keras and this project cannot be imported, to show that the SavedModel needs TensorFlow only.
"""

import contextlib
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Run = Callable[[Mapping[str, Any]], dict[str, Any]]


def isolate() -> None:
    """Prevent imports of Keras and of this project, and TF32, which rounds the factors of products to 10 bits."""
    for name in ("keras", "keras_attn", "keras_attn_export"):
        sys.modules[name] = None  # type: ignore[assignment]  # makes the import system raise ImportError
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


def main(saved_model: str, cases: str, results: str, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    """Load the SavedModel, run every case, write the outputs: with TensorFlow's C interface, or else with Python."""
    # `_format` and `_processes` as packages of their own, which import nothing of `keras_attn_export`.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from _format.case_writing import save_cases
    from _format.cases import load_cases
    from _format.dtypes import decoded
    from _format.names import Case
    from _processes.saved_model_in_c import SavedModel

    def run_cases(run: Run) -> list[Case]:
        results = ((case.name, run(case.inputs)) for case in load_cases(Path(cases)))
        return [Case(name, {}, {key: decoded(array) for key, array in arrays.items()}) for name, arrays in results]

    try:
        with contextlib.closing(SavedModel(Path(saved_model), inputs, outputs)) as in_c:
            cases_run = run_cases(in_c.run)
    except Exception:  # noqa: BLE001 - no library, a dtype, a custom operator; errors of the model appear again in Python
        cases_run = run_cases(_in_python(saved_model))
    save_cases(Path(results), cases_run)


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
    isolate()
    if asked := sys.stdin.readline():
        threading.Thread(target=_end_with_the_other, daemon=True).start()
        main(*json.loads(asked))
