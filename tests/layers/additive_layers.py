"""Layers with additive scores, what they are called with, and how close their gradients are."""

import numpy as np
from backends import compiled, gradients_of, precision_of
from contract_cases import as_numpy, randomise
from keras import ops
from tolerances import TOLERANCES, assert_close

from keras_attn import AdditiveAttention
from keras_attn._maths.blocked_additive import blocked_additive_scores

B, Tq, Tk, Dq, Dk, Dv, U = 2, 7, 5, 4, 6, 3, 8


def layer_of(block_size, **options):
    layer = AdditiveAttention(U, query_block_size=block_size, **options)
    layer.build((None, None, Dq), (None, None, Dk), (None, None, Dv))
    randomise(layer)
    return layer


def arrays(leading=(B,), Tq=Tq, Tk=Tk):
    rng = np.random.default_rng(0)
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}
    return {name: rng.normal(size=(*leading, *shape)).astype("float32") for name, shape in shapes.items()}


def assert_gradients_close(actual, expected, dtype="float32"):
    """Compares in units of the largest entry: a gradient is a sum of terms of its size."""
    tolerance = TOLERANCES[precision_of(dtype)][0]
    for (name, one), other in zip(actual.items(), expected.values(), strict=True):
        scale = np.abs(other.astype("float64")).max()
        assert scale > 0, name
        assert_close(one.astype("float64") / scale, other.astype("float64") / scale, tolerance=tolerance)


def second_gradients(tensors, block_size, upstream=1.0, mode="eager"):
    inner = gradients_of(lambda *x: ops.sum(upstream * blocked_additive_scores(*x, block_size)), 3)
    penalty = gradients_of(lambda *x: sum(ops.sum(gradient**3) for gradient in inner(*x)), 3)
    gradients = compiled(penalty, mode)(*tensors)
    return {name: as_numpy(gradient) for name, gradient in zip(("queries", "keys", "w_v"), gradients, strict=True)}
