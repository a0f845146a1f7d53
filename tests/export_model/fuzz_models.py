"""Random small models with attention layers, drawn by hypothesis, and random inputs of the models."""

from types import SimpleNamespace as Plan

import keras
import numpy as np
from hypothesis import strategies as st
from keras import layers

from keras_attn import (
    AdditiveAttention,
    BilinearAttention,
    CosineAttention,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
)

SIZES = st.integers(1, 6)
SCORES = {
    "additive": lambda plan, **options: AdditiveAttention(plan.units, **options),
    "dot": lambda plan, **options: DotProductAttention(**options),
    "normalized": lambda plan, **options: AdditiveAttention(plan.units, normalize=True, **options),
    "bilinear": lambda plan, **options: BilinearAttention(**options),
    "gaussian": lambda plan, **options: GaussianAttention(1.5, **options),
    "cosine": lambda plan, **options: CosineAttention(0.5, **options),
    "heads": lambda plan, name, **options: MultiHeadAttention(
        DotProductAttention(**options), 4, 3, 2, num_kv_heads=2, name=name
    ),
}
EQUAL_SIZE_SCORES = ("dot", "gaussian", "cosine")  # scores of queries and keys with equal sizes

PLANS = st.builds(
    Plan,
    score=st.sampled_from(["additive", "dot", *SCORES]),
    Dq=SIZES,
    Dk=SIZES,
    Dv=SIZES,
    units=st.integers(1, 9),
    lengths=st.sampled_from([None, "B", "B", "B, Tq"]),
    lengths_dtype=st.sampled_from(["int32", "int64", "int16"]),
    mask=st.sampled_from([None, None, "Tq, Tk", "1, Tk"]),
    causal=st.booleans(),
    window=st.sampled_from([None, None, None, (1, 2), (None, 1), (0, None)]),
    normalizer=st.sampled_from(["softmax", "softmax", "softmax", "sparsemax", "sigmoid"]),
    dropout=st.sampled_from([0.0, 0.4]),
    encoder=st.sampled_from([None, None, None, "dense", "gru", "conv", "embedding"]),
    has_two_calls=st.booleans(),
    is_nested=st.booleans(),
    has_static_axes=st.booleans(),
    returns_weights=st.booleans(),
    output_structure=st.sampled_from(["tensor", "list", "dict"]),
)

STATIC_SIZES = {"Tq": 4, "Tk": 7}


def build_planned_model(plan: Plan) -> keras.Model:
    Tq, Tk = (STATIC_SIZES["Tq"], STATIC_SIZES["Tk"]) if plan.has_static_axes else (None, None)
    inputs = {"queries": keras.Input((Tq, plan.Dq), name="queries")}
    keys = values = _build_keys(plan, Tk, inputs)
    if plan.encoder is None:
        values = inputs["values"] = keras.Input((Tk, plan.Dv), name="values")
    queries = inputs["queries"]
    if plan.score in EQUAL_SIZE_SCORES:
        queries = layers.Dense(keys.shape[-1], name="to_keys")(queries)
    masks = _build_masks(plan, Tq, Tk, inputs)
    layer_options = {"dropout": plan.dropout, "seed": 1, "normalizer": plan.normalizer}
    layer = SCORES[plan.score](plan, **layer_options, name="attention")
    pooled, weights = layer(queries, keys, values, return_attention_scores=True, **masks)
    if plan.has_two_calls and pooled.shape[-1] == queries.shape[-1]:
        pooled = layer(pooled, keys, values, **masks)
    outputs = {"pooled": pooled, "weights": weights} if plan.returns_weights else {"pooled": pooled}
    if plan.output_structure != "dict":
        outputs = list(outputs.values()) if plan.output_structure == "list" or plan.returns_weights else pooled
    model = keras.Model(inputs, outputs)
    if plan.is_nested:
        outer_inputs = {name: keras.Input(x.shape[1:], dtype=x.dtype, name=name) for name, x in inputs.items()}
        model = keras.Model(outer_inputs, model(outer_inputs))
    return model


def _build_keys(plan: Plan, Tk: int | None, inputs: dict) -> keras.KerasTensor:
    if plan.encoder == "embedding":
        ids = inputs["ids"] = keras.Input((Tk,), dtype="int32", name="ids")
        return layers.Embedding(5, plan.Dk, mask_zero=True)(ids)
    keys = inputs["keys"] = keras.Input((Tk, plan.Dk), name="keys")
    encoders = {
        "dense": lambda: layers.Dense(plan.units, activation="tanh"),
        "gru": lambda: layers.GRU(plan.units, return_sequences=True),
        "conv": lambda: layers.Conv1D(plan.units, 3, padding="same"),
    }
    return encoders[plan.encoder]()(keys) if plan.encoder else keys


def _build_masks(plan: Plan, Tq: int | None, Tk: int | None, inputs: dict) -> dict:
    masks: dict = {"use_causal_mask": plan.causal, "window": plan.window}
    if plan.lengths:
        shape = () if plan.lengths == "B" else (Tq,)
        masks["valid_lens"] = inputs["lens"] = keras.Input(shape, dtype=plan.lengths_dtype, name="lens")
    if plan.mask:
        shape = (1 if plan.mask == "1, Tk" else Tq, Tk)
        masks["attention_mask"] = inputs["mask"] = keras.Input(shape, dtype="bool", name="mask")
    return masks


def draw_inputs(plan: Plan, model: keras.Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random inputs of random sizes; some lengths are negative or exceed the number of keys."""
    B = int(rng.integers(1, 6))
    Tq, Tk = (STATIC_SIZES["Tq"], STATIC_SIZES["Tk"]) if plan.has_static_axes else rng.integers(1, 13, 2).tolist()
    axes = {"queries": (B, Tq), "keys": (B, Tk), "values": (B, Tk), "ids": (B, Tk), "mask": (B, Tq, Tk)}
    axes["lens"] = (B,) if plan.lengths == "B" else (B, Tq)
    arrays = {}
    for tensor in model.inputs:
        shape = [static_size or size for static_size, size in zip(tensor.shape, axes[tensor.name], strict=False)]
        shape += tensor.shape[len(shape) :]
        if tensor.name == "ids":
            arrays[tensor.name] = rng.integers(0, 5, shape).astype("int32")
        elif tensor.name == "lens":
            arrays[tensor.name] = rng.integers(-1, Tk + 3, shape).astype(tensor.dtype)
        elif tensor.name == "mask":
            arrays[tensor.name] = rng.random(shape) < 0.7
        else:
            arrays[tensor.name] = rng.standard_normal(shape).astype("float32")
    return arrays


def poison_padding(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs with NaN in padded keys and infinity in padded values."""
    arrays = dict(inputs)
    for name, value in (("keys", np.nan), ("values", np.inf)):
        array = inputs[name].copy()
        array[np.arange(array.shape[1]) >= inputs["lens"][:, None]] = value
        arrays[name] = array
    return arrays
