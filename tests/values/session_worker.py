"""Runner of models in onnxruntime; as a script, a separate process, since a file may terminate its process.

Integer division of the least integer by -1 does, and Keras's own exporter writes such a `Div` unchanged.
"""

import pickle
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort


def run_model(model: bytes, inputs: Mapping[str, tuple[np.ndarray, ...]]) -> dict[str, Any]:
    """Return the outputs of a model for each kind of value, or the message of the error in their place."""
    try:
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common class
        return dict.fromkeys(inputs, f"does not load: {error}")
    names = [argument.name for argument in session.get_inputs()]
    results: dict[str, Any] = {}
    for kind, arrays in inputs.items():
        try:
            results[kind] = session.run(None, dict(zip(names, arrays, strict=True)))
        except Exception as error:  # noqa: BLE001
            results[kind] = f"does not run: {error}"
    return results


if __name__ == "__main__":
    while True:
        try:
            arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump(run_model(*arguments), sys.stdout.buffer)
        sys.stdout.buffer.flush()
