"""A Keras model as ONNX, without the rest of an export: what onnxruntime makes of it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def onnx_outputs(model, inputs: Mapping[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The outputs of a functional model with a dict of outputs, by onnxruntime on the operators that tracing gives."""
    import onnxruntime

    from keras_attn_export._model.signature import model_signature
    from keras_attn_export._tracing.saved_model import write_saved_model
    from keras_attn_export._tracing.to_onnx import trace

    traced = trace(write_saved_model(model, model_signature(model, None), folder / "saved_model"), ()).model
    session = onnxruntime.InferenceSession(traced.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))
