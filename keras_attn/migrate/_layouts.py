"""Weight layouts of attention layers, by framework: names, axes, transformations.

Names are those of the framework with dots between their parts. Axes are named `Dq Dk Dv`, the sizes of a query, key and
value, and `U`, the number of hidden units.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class LayoutEntry:
    """Names and axes of one array of a state, and its conversion to variables."""

    names: tuple[str, ...]  # alternatives, the usual name first
    axes: tuple[str, ...]  # a name or number per axis; `H*K` is a product
    targets: tuple[str, ...]  # variables of our layer; several variables get equal shares of the first axis
    convert: Callable[[Array], Array]  # from the array or share in the state to the variable
    optional: bool = False


@dataclass(frozen=True)
class Layout:
    """Arrays of one layer class of a framework."""

    origin: str  # name of the layer class, for messages
    entries: tuple[LayoutEntry, ...]
    equal_axes: tuple[str, ...] = ()  # axes that are always equal in the source, but not in our layer
    # Post-processes the converted weights: adds constant weights, and combines several entries into one weight.
    finalize: Callable[[Weights, Sizes], Weights] = lambda weights, sizes: weights

    def weights(self, arrays: Weights, sizes: Sizes) -> Weights:
        """Convert arrays, by the first name of their entry, to weights by the name of our variable."""
        weights = {}
        for entry in self.entries:
            if (array := arrays.get(entry.names[0])) is not None:
                shares = np.split(array, len(entry.targets)) if len(entry.targets) > 1 else [array]
                for variable, share in zip(entry.targets, shares, strict=True):
                    weights[variable] = entry.convert(share)
        return self.finalize(weights, sizes)


def make_entry(
    names: str, axes: str, targets: str, convert: Callable[[Array], Array] = np.asarray, *, optional: bool = False
) -> LayoutEntry:
    """Create an entry from space-separated names, axes and variables."""
    return LayoutEntry(tuple(names.split()), tuple(axes.split()), tuple(targets.split()), convert, optional)


# Names of the kernel of a dense layer; `_kernel` is the attribute in checkpoints of Keras 3. Kernels are (out, in) in
# torch and MXNet, and (in, out) in the other frameworks, as in Keras.
_KERNEL_NAMES: dict[str, tuple[str, ...]] = dict.fromkeys(("torch", "mxnet", "paddle"), ("weight",))
_KERNEL_NAMES |= {"tensorflow": ("kernel", "_kernel"), "flax": ("kernel",)}
_OUT_IN_SOURCES = ("torch", "mxnet")


def make_kernel_entry(source: str, names: str, target: str, size_in: str, size_out: str) -> LayoutEntry:
    """Create an entry for the kernel of a dense layer from `size_in` to `size_out`, our sublayer `target`."""
    kernels = " ".join(f"{name}.{kernel}" for name in names.split() for kernel in _KERNEL_NAMES[source])
    if source in _OUT_IN_SOURCES:
        return make_entry(kernels, f"{size_out} {size_in}", f"{target}.kernel", np.transpose)
    return make_entry(kernels, f"{size_in} {size_out}", f"{target}.kernel")


def additive_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """Return the layouts for an `AdditiveAttention`."""
    if source == "keras":
        return _KERAS_ADDITIVE, _KERAS_CONCAT
    if source == "tfa":
        return (_BAHDANAU_NORMALIZED if layer.normalize else _BAHDANAU,)
    entries = (
        make_kernel_entry(source, "W_q", "W_q", "Dq", "U"),
        make_kernel_entry(source, "W_k", "W_k", "Dk", "U"),
        make_kernel_entry(source, "w_v v", "w_v", "U", "1"),  # `v` in early editions of the textbook
    )
    # The textbook has no normalized form: the names are those of our layer.
    normalized = (make_entry("g", "", "g"), make_entry("b", "U", "b"))
    return (Layout("the textbook's AdditiveAttention", entries + normalized if layer.normalize else entries),)


def dot_product_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """Return the layouts for a `DotProductAttention`: no weights, and from Keras an optional scale."""
    if source == "tfa":
        return ()
    return (_KERAS_DOT,) if source == "keras" else (Layout("the textbook's DotProductAttention", ()),)


def bilinear_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """Return the layouts for a `BilinearAttention`."""
    if source == "keras":
        return ()
    if source == "tfa":
        return (_LUONG,)
    dense = Layout("a dense layer W from keys to queries", (make_kernel_entry(source, "W", "W", "Dk", "Dq"),))
    if source not in ("torch", "paddle"):
        return (dense,)
    weight = make_entry("weight", "1 Dq Dk", "W.kernel", lambda array: array[0].T)
    bias = make_entry("bias", "1" if source == "torch" else "1 1", "bias", optional=True)
    # A softmax or sparsemax cancels a bias that is the same for all scores; a sigmoid does not, so `bias` is refused.
    entries = (weight,) if layer.normalizer == "sigmoid" else (weight, bias)
    return dense, Layout("nn.Bilinear(Dq, Dk, 1)", entries, finalize=_drop_bias)


def _drop_bias(weights: Weights, sizes: Sizes) -> Weights:
    return {"W.kernel": weights["W.kernel"]}


def _to_column(array: Array) -> Array:
    return array[:, None]


def _add_default_scale(weights: Weights, sizes: Sizes) -> Weights:
    return {"scale": np.ones((), "float32"), **weights}


def _finalize_keras_additive(weights: Weights, sizes: Sizes) -> Weights:
    """Express `sum(scale tanh(q + k))` with identity projections (U, U) and `scale` (U,) as w_v."""
    # Keras's layer has no projections, so it needs queries and keys of size U: `equal_axes` in its layout checks this.
    identity, ones = np.eye(sizes["U"], dtype="float32"), np.ones((sizes["U"], 1), "float32")
    # `weights` last: with a scale it has its own `w_v.kernel`.
    return {"W_q.kernel": identity, "W_k.kernel": identity, "w_v.kernel": ones, **weights}


def _finalize_keras_concat(weights: Weights, sizes: Sizes) -> Weights:
    """Express `concat_score_weight sum(tanh(scale (q + k)))` with scaled identity projections (U, U)."""
    kernel = np.eye(sizes["U"], dtype="float32") * _add_default_scale(weights, sizes)["scale"]
    return {"W_q.kernel": kernel, "W_k.kernel": kernel, "w_v.kernel": np.full((sizes["U"], 1), weights["concat"])}


def _finalize_luong(weights: Weights, sizes: Sizes) -> Weights:
    return {"W.kernel": weights["W.kernel"] * _add_default_scale(weights, sizes)["scale"]}


_BAHDANAU = Layout(
    "tfa.seq2seq.BahdanauAttention",
    (
        make_entry("query_layer.kernel", "Dq U", "W_q.kernel"),
        make_entry("memory_layer.kernel", "Dk U", "W_k.kernel"),
        make_entry("attention_v", "U", "w_v.kernel", _to_column),
    ),
)
_BAHDANAU_NORMALIZED = Layout(
    "tfa.seq2seq.BahdanauAttention(normalize=True)",
    (*_BAHDANAU.entries, make_entry("attention_g", "", "g"), make_entry("attention_b", "U", "b")),
)
_LUONG = Layout(
    "tfa.seq2seq.LuongAttention",
    (
        make_entry("memory_layer.kernel", "Dk Dq", "W.kernel"),
        # The name of the variable, and of the attribute in a checkpoint.
        make_entry("attention_g scale_weight", "", "scale", optional=True),
    ),
    finalize=_finalize_luong,
)
_KERAS_ADDITIVE = Layout(
    "keras.layers.AdditiveAttention",
    (make_entry("scale", "U", "w_v.kernel", _to_column, optional=True),),
    equal_axes=("Dq", "Dk", "U"),
    finalize=_finalize_keras_additive,
)
_KERAS_CONCAT = Layout(
    'keras.layers.Attention(score_mode="concat")',
    (make_entry("concat_score_weight", "", "concat"), make_entry("scale", "", "scale", optional=True)),
    equal_axes=("Dq", "Dk", "U"),
    finalize=_finalize_keras_concat,
)
_KERAS_DOT = Layout(
    "keras.layers.Attention", (make_entry("scale", "", "scale", optional=True),), finalize=_add_default_scale
)
