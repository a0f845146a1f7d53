"""Runs models in onnxruntime; as a script in a process of its own, which a file may end.

The least integer over -1 does, which Keras's own exporter writes as it is.
"""

import pickle
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort


def ran(model: bytes, given: Mapping[str, tuple[np.ndarray, ...]]) -> dict[str, Any]:
    """What a model gives for arrays by kind: its outputs, or the sentence that says why there are none."""
    try:
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common class
        return dict.fromkeys(given, f"does not load: {error}")
    names = [each.name for each in session.get_inputs()]
    found: dict[str, Any] = {}
    for kind, arrays in given.items():
        try:
            found[kind] = session.run(None, dict(zip(names, arrays, strict=True)))
        except Exception as error:  # noqa: BLE001
            found[kind] = f"does not run: {error}"
    return found


if __name__ == "__main__":
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump(ran(*asked), sys.stdout.buffer)
        sys.stdout.buffer.flush()
