"""Weight layouts of multi-head attention, by framework.

Axes in addition to those of `_layouts`: `H` heads of queries, `G` heads of keys and values, `K` and `V` sizes of a key
and a value in one head, `Do` output size. Our kernels join the heads: (Dq, H*K), (Dk, G*K), (Dv, G*V), (H*V, Do).
"""

from typing import Any

import numpy as np

from .._layers.dot_product import DotProductAttention
from ._layouts import Array, Layout, LayoutEntry, Sizes, Weights, make_entry, make_kernel_entry

_PROJECTIONS = (("W_q", "Dq", "H*K"), ("W_k", "Dk", "G*K"), ("W_v", "Dv", "G*V"), ("W_o", "H*V", "Do"))


def multi_head_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """Return the layouts for a `MultiHeadAttention` with scaled dot products."""
    if not isinstance(layer.attention, DotProductAttention) or layer.attention.scale is not None:
        raise ValueError(
            "`attention` must be a `DotProductAttention` without a `scale`, as in the trained layer. "
            f"Received: attention of type {type(layer.attention).__name__}, "
            f"scale={getattr(layer.attention, 'scale', None)}."
        )
    if source == "keras":
        layouts = [Layout("keras.layers.MultiHeadAttention", _head_entries("attention_output", "output"))]
    elif source == "tfa":
        layouts = [Layout("tfa.layers.MultiHeadAttention", _ADDONS_ENTRIES, finalize=_add_zero_biases)]
    else:
        layouts = [Layout("the textbook's MultiHeadAttention", _dense_entries(source, ("W_q", "W_k", "W_v", "W_o")))]
    if source == "torch":
        layouts += [_TORCH_PACKED, _TORCH_SEPARATE]
    elif source == "flax":
        layouts.append(Layout("flax.linen.MultiHeadDotProductAttention", _head_entries("out")))
    elif source == "paddle":
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        layouts.append(Layout("paddle.nn.MultiHeadAttention", _dense_entries(source, names)))
    return tuple(layouts) if layer.use_bias else tuple(map(_drop_biases, layouts))


def _drop_biases(layout: Layout) -> Layout:
    entries = tuple(entry for entry in layout.entries if not entry.targets[0].endswith(".bias"))
    return Layout(layout.origin, entries, layout.equal_axes)


def _dense_entries(source: str, names: tuple[str, ...]) -> tuple[LayoutEntry, ...]:
    kernels, biases = [], []
    for name, (target, size_in, size_out) in zip(names, _PROJECTIONS, strict=True):
        kernels.append(make_kernel_entry(source, name, target, size_in, size_out))
        biases.append(make_entry(f"{name}.bias", size_out, f"{target}.bias"))
    return (*kernels, *biases)


def _join_last_axes(array: Array) -> Array:
    return array.reshape(array.shape[0], -1)


def _join_first_axes(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])


def _join_first_and_last_axis(array: Array) -> Array:
    return _join_last_axes(np.swapaxes(array, 0, 1))


def _head_entries(*output_names: str) -> tuple[LayoutEntry, ...]:
    """Create entries for kernels with an axis of heads. The output projection has one of the names `output_names`."""
    return (
        make_entry("query.kernel", "Dq H K", "W_q.kernel", _join_last_axes),
        make_entry("key.kernel", "Dk G K", "W_k.kernel", _join_last_axes),
        make_entry("value.kernel", "Dv G V", "W_v.kernel", _join_last_axes),
        make_entry(" ".join(f"{name}.kernel" for name in output_names), "H V Do", "W_o.kernel", _join_first_axes),
        make_entry("query.bias", "H K", "W_q.bias", np.ravel),
        make_entry("key.bias", "G K", "W_k.bias", np.ravel),
        make_entry("value.bias", "G V", "W_v.bias", np.ravel),
        make_entry(" ".join(f"{name}.bias" for name in output_names), "Do", "W_o.bias"),
    )


_TORCH_SHARED = (  # entries of both layouts of torch below
    make_entry("out_proj.weight", "Do H*V", "W_o.kernel", np.transpose),
    make_entry("in_proj_bias", "3*H*K", "W_q.bias W_k.bias W_v.bias"),
    make_entry("out_proj.bias", "Do", "W_o.bias"),
)
_TORCH_PACKED = Layout(
    "torch.nn.MultiheadAttention",
    (make_entry("in_proj_weight", "3*H*K Dq", "W_q.kernel W_k.kernel W_v.kernel", np.transpose), *_TORCH_SHARED),
    equal_axes=("Dq", "Dk", "Dv", "H*K", "G*K", "G*V"),
)
_TORCH_SEPARATE = Layout(
    "torch.nn.MultiheadAttention with kdim or vdim",
    (
        make_entry("q_proj_weight", "H*K Dq", "W_q.kernel", np.transpose),
        make_entry("k_proj_weight", "G*K Dk", "W_k.kernel", np.transpose),
        make_entry("v_proj_weight", "G*V Dv", "W_v.kernel", np.transpose),
        *_TORCH_SHARED,
    ),
    equal_axes=("H*K", "G*K", "G*V"),
)

# Entries for TensorFlow Addons: the axis of heads is the first one, and only the output projection has a bias.
_ADDONS_ENTRIES = (
    make_entry("query_kernel", "H Dq K", "W_q.kernel", _join_first_and_last_axis),
    make_entry("key_kernel", "G Dk K", "W_k.kernel", _join_first_and_last_axis),
    make_entry("value_kernel", "G Dv V", "W_v.kernel", _join_first_and_last_axis),
    make_entry("projection_kernel", "H V Do", "W_o.kernel", _join_first_axes),
    make_entry("projection_bias", "Do", "W_o.bias"),
)


def _add_zero_biases(weights: Weights, sizes: Sizes) -> Weights:
    bias_sizes = {"W_q": sizes["H"] * sizes["K"], "W_k": sizes["G"] * sizes["K"], "W_v": sizes["G"] * sizes["V"]}
    return {**{f"{name}.bias": np.zeros(size, "float32") for name, size in bias_sizes.items()}, **weights}
