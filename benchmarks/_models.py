"""The Keras models that are timed, and their ways into files. Imports TensorFlow."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
warnings.filterwarnings("ignore", message=".*np.object", category=FutureWarning)  # Keras's exporter in 3.15.1

import keras  # noqa: E402
import numpy as np  # noqa: E402
from _sizes import ADDITIVE, Size  # noqa: E402

from keras_attn import AdditiveAttention, DotProductAttention  # noqa: E402
from keras_attn_export import export_model  # noqa: E402

Arrays = dict[str, np.ndarray]


def attention_model(size: Size, *, query_block_size: Any = None, seed: int = 0) -> keras.Model:
    """Return a model of one attention layer, whose batch and sequences may have any length."""
    keras.utils.set_random_seed(seed)
    sequences = [keras.Input((None, size.D), name=name) for name in ("queries", "keys", "values")]
    valid_lens = keras.Input((None,) if size.per_query else (), dtype="int32", name="valid_lens")
    if size.layer == ADDITIVE:
        layer = AdditiveAttention(size.U, query_block_size=query_block_size, name="attention")
    else:
        layer = DotProductAttention(name="attention")
    outputs = layer(
        *sequences, valid_lens, use_causal_mask=size.causal, return_attention_scores=size.weights
    )  # fmt: skip
    return keras.Model([*sequences, valid_lens], list(outputs) if size.weights else outputs)


def keras_layer_call(size: Size, weights: list[np.ndarray]) -> Callable[..., Any]:
    """Return the same function made with the layer that Keras has, which takes a mask and no projections."""
    if size.layer == ADDITIVE:
        W_q, W_k, w_v = weights
        layer, scale = keras.layers.AdditiveAttention(), w_v[:, 0]
        project_q, project_k = _projection(W_q), _projection(W_k)
        layer.build([(None, None, size.U), (None, None, size.D), (None, None, size.U)])
    else:
        layer, scale = keras.layers.Attention(use_scale=True), np.float32(size.D**-0.5)
        project_q = project_k = _unchanged
        layer.build([(None, None, size.D)] * 3)
    layer.set_weights([scale])

    def call(queries: Any, keys: Any, values: Any, valid_lens: Any) -> Any:
        mask = keras.ops.arange(size.Tk)[None] < valid_lens[:, None]
        return layer([project_q(queries), values, project_k(keys)], mask=[None, mask])

    return call


def _projection(kernel: np.ndarray) -> Any:
    dense = keras.layers.Dense(kernel.shape[1], use_bias=False)
    dense.build((None, None, kernel.shape[0]))
    dense.set_weights([kernel])
    return dense


def _unchanged(array: Any) -> Any:
    return array


def stock_export(model: keras.Model, file: Path) -> Path:
    """Write the ONNX file that Keras itself writes: the plain graph, and the peer of every ratio."""
    model(keras.tree.map_structure(_ones, model.input))  # Keras refuses to export a model that was never called
    model.export(file, format="onnx", verbose=False)
    return file


def _ones(spec: Any) -> np.ndarray:
    return np.ones([2 if axis is None else axis for axis in spec.shape], spec.dtype)


def our_export(model: keras.Model, folder: Path, lowering: str, provider: str) -> tuple[Path, str]:
    """Write a bundle; return its ONNX file and the lowering it ended up with."""
    bundle = export_model(model, folder, lowering=lowering, provider=provider, overwrite=True, progress=False)
    return bundle.path / "model.onnx", str(bundle.manifest["layers"][0]["lowering"])
