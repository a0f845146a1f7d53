"""The Keras models of the bundles: one kind of layer under several masks, each an output of its own."""

from typing import Any

import keras
import numpy as np

import keras_attn

from .kinds import ADDITIVE, BILINEAR, COSINE, DOT, GAUSSIAN, Arrays, Kind
from .masks import SEQUENCES, call_arguments, dtype_of, mask_inputs, shape_of
from .plans import Plan


def model_of(plan: Plan, weights: Arrays) -> keras.Model:
    """A functional model; its layers have the same weights and the names of their masks."""
    kind = plan.kind
    names = (*SEQUENCES, *mask_inputs(plan.masks))
    inputs = {
        name: keras.Input(shape_of(name, kind, None, None, None)[1:], name=name, dtype=dtype_of(name)) for name in names
    }
    outputs = {}
    for mask in plan.masks:
        layer = layer_of(kind, mask)
        arguments = call_arguments(mask, inputs, kind)
        causal = arguments.pop("causal", False)
        sequences = (inputs[name] for name in SEQUENCES)
        found = layer(*sequences, **arguments, use_causal_mask=causal, return_attention_scores=plan.weights)
        assign(layer, kind, weights)
        outputs |= {mask: found[0], f"{mask}_weights": found[1]} if plan.weights else {mask: found}
    return keras.Model(inputs, outputs)


def layer_of(kind: Kind, name: str) -> keras.Layer:
    """The layer of a kind."""
    if kind.heads is not None:
        H, G = kind.heads
        sizes = {"num_heads": H, "num_kv_heads": G, "key_dim": kind.K, "output_dim": kind.Do}
        return keras_attn.MultiHeadAttention(keras_attn.DotProductAttention(), name=name, **sizes)
    if kind.score == ADDITIVE:
        # Blocks are of Keras's own way, not of the file's: without them it is traced in a third of the time.
        return keras_attn.AdditiveAttention(kind.U, name=name, normalizer=kind.normalizer, query_block_size=None)
    layer = {
        DOT: keras_attn.DotProductAttention,
        BILINEAR: keras_attn.BilinearAttention,
        GAUSSIAN: keras_attn.GaussianAttention,
        COSINE: keras_attn.CosineAttention,
    }[kind.score]
    return layer(name=name, normalizer=kind.normalizer)


def assign(layer: Any, kind: Kind, weights: Arrays) -> None:
    """Give a layer the weights that the oracle has."""
    for name, array in weights.items():
        if name in ("bandwidth", "temperature"):
            getattr(layer, f"log_{name}").assign(np.log(array))
        elif name.endswith("_bias"):
            getattr(layer, name.removesuffix("_bias")).bias.assign(array)
        else:
            getattr(layer, name).kernel.assign(array.T if kind.score == BILINEAR else array)
