"""Weight layouts of multi-head attention, by framework.

Further sizes are `H` heads, `G` heads of keys and values, `K` and `V` the sizes of a key and a value in one head, and
`Do` of the output. We store the heads side by side: kernels (Dq, H*K), (Dk, G*K), (Dv, G*V) and (H*V, Do).
"""

from typing import Any

import numpy as np

from .._layers.dot_product import DotProductAttention
from ._layouts import Array, Entry, Layout, Sizes, Weights, entry_of, kernel_of

_SIDE_BY_SIDE = (("W_q", "Dq", "H*K"), ("W_k", "Dk", "G*K"), ("W_v", "Dv", "G*V"), ("W_o", "H*V", "Do"))


def multi_head_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """What becomes a `MultiHeadAttention` around scaled dot products."""
    if not isinstance(layer.attention, DotProductAttention) or layer.attention.scale is not None:
        raise ValueError(
            "`attention` must be a `DotProductAttention` without a `scale`: that is what was trained. "
            f"Received: attention of type {type(layer.attention).__name__}, "
            f"scale={getattr(layer.attention, 'scale', None)}."
        )
    if source == "keras":
        layouts = [Layout("keras.layers.MultiHeadAttention", _per_head("attention_output", "output"))]
    elif source == "tfa":
        layouts = [Layout("tfa.layers.MultiHeadAttention", _HEADS_FIRST, complete=_zero_biases)]
    else:
        layouts = [Layout("the textbook's MultiHeadAttention", _dense(source, ("W_q", "W_k", "W_v", "W_o")))]
    if source == "torch":
        layouts += [_TORCH_PACKED, _TORCH_SEPARATE]
    elif source == "flax":
        layouts.append(Layout("flax.linen.MultiHeadDotProductAttention", _per_head("out")))
    elif source == "paddle":
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        layouts.append(Layout("paddle.nn.MultiHeadAttention", _dense(source, names)))
    return tuple(layouts) if layer.use_bias else tuple(map(_without_biases, layouts))


def _without_biases(layout: Layout) -> Layout:
    entries = tuple(entry for entry in layout.entries if not entry.to[0].endswith(".bias"))
    return Layout(layout.origin, entries, layout.equal)


def _dense(source: str, names: tuple[str, ...]) -> tuple[Entry, ...]:
    kernels, biases = [], []
    for name, (to, size_in, size_out) in zip(names, _SIDE_BY_SIDE, strict=True):
        kernels.append(kernel_of(source, name, to, size_in, size_out))
        biases.append(entry_of(f"{name}.bias", size_out, f"{to}.bias"))
    return (*kernels, *biases)


def _join_last(array: Array) -> Array:
    return array.reshape(array.shape[0], -1)


def _join_first(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])


def _join_around(array: Array) -> Array:
    return _join_last(np.swapaxes(array, 0, 1))


def _per_head(*output: str) -> tuple[Entry, ...]:
    """Kernels with an axis for the heads. `output` is the name of the last one, and others that it may have."""
    return (
        entry_of("query.kernel", "Dq H K", "W_q.kernel", _join_last),
        entry_of("key.kernel", "Dk G K", "W_k.kernel", _join_last),
        entry_of("value.kernel", "Dv G V", "W_v.kernel", _join_last),
        entry_of(" ".join(f"{name}.kernel" for name in output), "H V Do", "W_o.kernel", _join_first),
        entry_of("query.bias", "H K", "W_q.bias", np.ravel),
        entry_of("key.bias", "G K", "W_k.bias", np.ravel),
        entry_of("value.bias", "G V", "W_v.bias", np.ravel),
        entry_of(" ".join(f"{name}.bias" for name in output), "Do", "W_o.bias"),
    )


_TORCH_LAST = (
    entry_of("out_proj.weight", "Do H*V", "W_o.kernel", np.transpose),
    entry_of("in_proj_bias", "3*H*K", "W_q.bias W_k.bias W_v.bias"),
    entry_of("out_proj.bias", "Do", "W_o.bias"),
)
_TORCH_PACKED = Layout(
    "torch.nn.MultiheadAttention",
    (entry_of("in_proj_weight", "3*H*K Dq", "W_q.kernel W_k.kernel W_v.kernel", np.transpose), *_TORCH_LAST),
    equal=("Dq", "Dk", "Dv", "H*K", "G*K", "G*V"),
)
_TORCH_SEPARATE = Layout(
    "torch.nn.MultiheadAttention with kdim or vdim",
    (
        entry_of("q_proj_weight", "H*K Dq", "W_q.kernel", np.transpose),
        entry_of("k_proj_weight", "G*K Dk", "W_k.kernel", np.transpose),
        entry_of("v_proj_weight", "G*V Dv", "W_v.kernel", np.transpose),
        *_TORCH_LAST,
    ),
    equal=("H*K", "G*K", "G*V"),
)

# TensorFlow Addons: the heads come first, and only the output has a bias.
_HEADS_FIRST = (
    entry_of("query_kernel", "H Dq K", "W_q.kernel", _join_around),
    entry_of("key_kernel", "G Dk K", "W_k.kernel", _join_around),
    entry_of("value_kernel", "G Dv V", "W_v.kernel", _join_around),
    entry_of("projection_kernel", "H V Do", "W_o.kernel", _join_first),
    entry_of("projection_bias", "Do", "W_o.bias"),
)


def _zero_biases(weights: Weights, sizes: Sizes) -> Weights:
    lengths = {"W_q": sizes["H"] * sizes["K"], "W_k": sizes["G"] * sizes["K"], "W_v": sizes["G"] * sizes["V"]}
    return {**{f"{name}.bias": np.zeros(length, "float32") for name, length in lengths.items()}, **weights}
