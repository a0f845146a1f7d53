"""Weight layouts of attention layers, by framework: names, axes, transformations.

Names are those of the source with dots between their words. Sizes are `Dq Dk Dv` of a query, key and value, and `U`
hidden units.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Entry:
    """One array of a state."""

    names: tuple[str, ...]  # alternatives, the usual one first
    axes: tuple[str, ...]  # the size of each axis; `H*K` is a product
    to: tuple[str, ...]  # the variables of our layer; of several, each gets an equal share of the first axis
    turn: Callable[[Array], Array]  # from the array (or the share) as stored there to ours
    optional: bool = False  # whether a state may lack it


@dataclass(frozen=True)
class Layout:
    """The arrays of one kind of layer of one source."""

    origin: str  # the name of the layer there
    entries: tuple[Entry, ...]
    equal: tuple[str, ...] = ()  # sizes that are equal there, and need not be equal in our layer
    # Makes the weights that no entry makes, or that several make together.
    complete: Callable[[Weights, Sizes], Weights] = lambda weights, sizes: weights

    def weights(self, arrays: Weights, sizes: Sizes) -> Weights:
        """Our weights, by the names of our variables, of arrays by the first names of their entries."""
        weights = {}
        for entry in self.entries:
            if (array := arrays.get(entry.names[0])) is not None:
                shares = np.split(array, len(entry.to)) if len(entry.to) > 1 else [array]
                weights.update({variable: entry.turn(share) for variable, share in zip(entry.to, shares, strict=True)})
        return self.complete(weights, sizes)


def entry_of(
    names: str, axes: str, to: str, turn: Callable[[Array], Array] = np.asarray, *, optional: bool = False
) -> Entry:
    """An entry, its names, axes and variables written with spaces between."""
    return Entry(tuple(names.split()), tuple(axes.split()), tuple(to.split()), turn, optional)


# What a dense layer calls its kernel; `_kernel` is the attribute that checkpoints of Keras 3 have. It is (out, in) in
# torch and MXNet, and (in, out) elsewhere, as in Keras.
_KERNELS = {
    "torch": ("weight",),
    "mxnet": ("weight",),
    "paddle": ("weight",),
    "tensorflow": ("kernel", "_kernel"),
    "flax": ("kernel",),
}
_OUT_IN = ("torch", "mxnet")


def kernel_of(source: str, names: str, to: str, size_in: str, size_out: str) -> Entry:
    """The kernel of a dense layer that maps `size_in` to `size_out` and becomes our sublayer `to`."""
    kernels = " ".join(f"{name}.{kernel}" for name in names.split() for kernel in _KERNELS[source])
    if source in _OUT_IN:
        return entry_of(kernels, f"{size_out} {size_in}", f"{to}.kernel", np.transpose)
    return entry_of(kernels, f"{size_in} {size_out}", f"{to}.kernel")


def additive_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """What becomes an `AdditiveAttention`."""
    if source == "keras":
        return _KERAS_ADDITIVE, _KERAS_CONCAT
    if source == "tfa":
        return (_BAHDANAU_NORMALIZED if layer.normalize else _BAHDANAU,)
    entries = (
        kernel_of(source, "W_q", "W_q", "Dq", "U"),
        kernel_of(source, "W_k", "W_k", "Dk", "U"),
        kernel_of(source, "w_v v", "w_v", "U", "1"),  # early editions of the textbook call it v
    )
    # The textbook has no such form: whoever adds it has these two.
    normalized = (entry_of("g", "", "g"), entry_of("b", "U", "b"))
    return (Layout("the textbook's AdditiveAttention", entries + normalized if layer.normalize else entries),)


def dot_product_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """What becomes a `DotProductAttention`: it has no weights, but that of Keras may have a scale."""
    if source == "tfa":
        return ()
    return (_KERAS_DOT,) if source == "keras" else (Layout("the textbook's DotProductAttention", ()),)


def bilinear_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """What becomes a `BilinearAttention`."""
    if source == "keras":
        return ()
    if source == "tfa":
        return (_LUONG,)
    dense = Layout("a dense layer W from keys to queries", (kernel_of(source, "W", "W", "Dk", "Dq"),))
    if source not in ("torch", "paddle"):
        return (dense,)
    weight = entry_of("weight", "1 Dq Dk", "W.kernel", lambda array: array[0].T)
    bias = entry_of("bias", "1" if source == "torch" else "1 1", "bias", optional=True)
    # A number that is added to all scores changes no weights, unless each is a sigmoid of its score.
    entries = (weight,) if layer.normalizer == "sigmoid" else (weight, bias)
    return dense, Layout("nn.Bilinear(Dq, Dk, 1)", entries, complete=_without_bias)


def _without_bias(weights: Weights, sizes: Sizes) -> Weights:
    return {"W.kernel": weights["W.kernel"]}


def _column(array: Array) -> Array:
    return array[:, None]


def _unscaled_is_one(weights: Weights, sizes: Sizes) -> Weights:
    return {"scale": np.ones((), "float32"), **weights}


def _keras_additive(weights: Weights, sizes: Sizes) -> Weights:
    """`sum(scale tanh(q + k))`."""
    identity = np.eye(sizes["U"], dtype="float32")
    return {
        "W_q.kernel": identity,
        "W_k.kernel": identity,
        "w_v.kernel": np.ones((sizes["U"], 1), "float32"),
        **weights,
    }


def _keras_concat(weights: Weights, sizes: Sizes) -> Weights:
    """`concat_score_weight sum(tanh(scale (q + k)))`."""
    kernel = np.eye(sizes["U"], dtype="float32") * _unscaled_is_one(weights, sizes)["scale"]
    return {"W_q.kernel": kernel, "W_k.kernel": kernel, "w_v.kernel": np.full((sizes["U"], 1), weights["concat"])}


def _luong(weights: Weights, sizes: Sizes) -> Weights:
    return {"W.kernel": weights["W.kernel"] * _unscaled_is_one(weights, sizes)["scale"]}


_BAHDANAU = Layout(
    "tfa.seq2seq.BahdanauAttention",
    (
        entry_of("query_layer.kernel", "Dq U", "W_q.kernel"),
        entry_of("memory_layer.kernel", "Dk U", "W_k.kernel"),
        entry_of("attention_v", "U", "w_v.kernel", _column),
    ),
)
_BAHDANAU_NORMALIZED = Layout(
    "tfa.seq2seq.BahdanauAttention(normalize=True)",
    (*_BAHDANAU.entries, entry_of("attention_g", "", "g"), entry_of("attention_b", "U", "b")),
)
_LUONG = Layout(
    "tfa.seq2seq.LuongAttention",
    (
        entry_of("memory_layer.kernel", "Dk Dq", "W.kernel"),
        # The name of the variable, and that of the attribute, which a checkpoint has.
        entry_of("attention_g scale_weight", "", "scale", optional=True),
    ),
    complete=_luong,
)
_KERAS_ADDITIVE = Layout(
    "keras.layers.AdditiveAttention",
    (entry_of("scale", "U", "w_v.kernel", _column, optional=True),),
    equal=("Dq", "Dk", "U"),
    complete=_keras_additive,
)
_KERAS_CONCAT = Layout(
    'keras.layers.Attention(score_mode="concat")',
    (entry_of("concat_score_weight", "", "concat"), entry_of("scale", "", "scale", optional=True)),
    equal=("Dq", "Dk", "U"),
    complete=_keras_concat,
)
_KERAS_DOT = Layout(
    "keras.layers.Attention", (entry_of("scale", "", "scale", optional=True),), complete=_unscaled_is_one
)
