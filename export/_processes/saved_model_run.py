"""Script: run golden cases through a SavedModel: `python saved_model_run.py`, with one line of JSON on standard input.

The line is `[SAVED_MODEL, CASES.npz, RESULTS.npz]`. The process exits without results when standard input is closed.
`_tracing/saved_model_worker.py` starts the script. Imports of `keras`, `keras_attn` and `keras_attn_export` fail: the
SavedModel must not need them.
"""

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
    """Prevent imports of Keras and of this project's packages."""
    for name in ("keras", "keras_attn", "keras_attn_export"):
        sys.modules[name] = None  # type: ignore[assignment]  # makes the import system raise ImportError
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main(saved_model: str, cases: str, results: str) -> None:
    """Load the SavedModel, run every case and write the outputs."""
    # `_format` is imported as a top-level package, because `isolate` prevents the import of `keras_attn_export`.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from _format.case_writing import save_cases
    from _format.cases import load_cases
    from _format.dtypes import decode_strings
    from _format.manifest import SERVING_SIGNATURE
    from _format.names import Case

    run = load(saved_model, SERVING_SIGNATURE)

    def replay(case: Case) -> Case:
        return Case(case.name, {}, {name: decode_strings(array) for name, array in run(case.inputs).items()})

    save_cases(Path(results), [replay(case) for case in load_cases(Path(cases))])


def load(saved_model: str, signature: str) -> Run:
    """Return a function that runs a signature of the SavedModel."""
    import tensorflow as tf

    # TF32 rounds factors to 11 bits, but outputs are compared as float32.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)  # the parent process uses the GPU too
    try:
        model = tf.saved_model.load(saved_model)
    except Exception as error:
        if "Op type not registered" not in str(error):
            raise
        _load_tensorflow_text_ops(tf)
        model = tf.saved_model.load(saved_model)
    serve = model.signatures[signature]

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        tensors = serve(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    return run


def _load_tensorflow_text_ops(tf: Any) -> None:
    """Load the operator libraries of TensorFlow Text without importing the package, which imports Keras."""
    package = importlib.util.find_spec("tensorflow_text")
    for folder in package.submodule_search_locations or () if package else ():
        for library in Path(folder).glob("python/ops/*.so"):
            tf.load_op_library(str(library))


def _exit_with_parent() -> None:
    """Exit when the parent process closes the pipe."""
    # `sys.stdin.read` would hold a lock that the interpreter needs to shut down.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    isolate()
    import tensorflow  # noqa: F401 - takes seconds, in which the parent process writes the SavedModel

    if request := sys.stdin.readline():
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        main(*json.loads(request))
