"""Infer layer sizes from a state dict, and check shapes against them."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._layers.additive import AdditiveAttention
from .._layers.bilinear import BilinearAttention
from .._layers.multi_head import MultiHeadAttention
from .._recurrent.cell import AttentionCell
from .._shapes import shapes_agree
from ._cell_layouts import get_recurrent_sizes
from ._layouts import Array, Layout, LayoutEntry

INPUT_AXES = ("Dq", "Dk", "Dv")
INFERRED_AXES = (*INPUT_AXES, "M", "X")  # sizes from the state until the layer is built


class MatchedEntry(NamedTuple):
    """Entry of a layout, with its name and array in a state."""

    entry: LayoutEntry
    name: str
    array: Array


def infer_sizes(layer: Any, layout: Layout, matches: list[MatchedEntry]) -> dict[str, int]:
    """Return the size of each axis: from the layer, and if it is not built, sizes of its inputs from the state."""
    sizes: dict[str, int] = {}
    for match in matches:
        if match.array.ndim == len(match.entry.axes):
            axes = zip(match.entry.axes, match.array.shape, strict=True)
            sizes.update({axis: size for axis, size in axes if axis in INFERRED_AXES})
    sizes.update(_get_layer_sizes(layer, sizes.get("Dq")))
    tied = {axis: _compute_size(axis, sizes) for axis in layout.equal_axes}
    values = {size for size in tied.values() if size is not None}
    if len(values) > 1:
        received = ", ".join(f"{axis}={size}" for axis, size in tied.items())
        raise ValueError(f"{layout.origin} has {' = '.join(tied)}, and this layer must too. Received: {received}.")
    return {**{axis: size for axis in tied if axis in INPUT_AXES for size in values}, **sizes}


def _get_layer_sizes(layer: Any, queries_size: int | None) -> dict[str, int]:
    """Return the sizes of a layer, or those it will have if built for queries of size `queries_size`."""
    sizes: dict[str, int | None] = {}
    if isinstance(layer, AdditiveAttention):
        sizes["U"] = layer.num_hiddens
        if layer.built:
            sizes |= {"Dq": layer.W_q.kernel.shape[0], "Dk": layer.W_k.kernel.shape[0]}
    elif isinstance(layer, AttentionCell):
        sizes |= get_recurrent_sizes(layer)
    elif isinstance(layer, BilinearAttention) and layer.built:
        sizes["Dk"], sizes["Dq"] = layer.W.kernel.shape
    elif isinstance(layer, MultiHeadAttention):
        if layer.built:
            projections = zip(INPUT_AXES, (layer.W_q, layer.W_k, layer.W_v), strict=True)
            sizes |= {name: projection.kernel.shape[0] for name, projection in projections}
            queries_size = sizes["Dq"]
        key_dim = layer.key_dim or (queries_size and queries_size // layer.num_heads)
        sizes |= {"H": layer.num_heads, "G": layer.num_kv_heads or layer.num_heads}
        sizes |= {"K": key_dim, "V": layer.value_dim or key_dim, "Do": layer.output_dim or queries_size}
    return {name: size for name, size in sizes.items() if size is not None}


def _compute_size(axis: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of an axis, which may be a product such as `3*H*K`; None if a factor is unknown."""
    factors = [int(factor) if factor.isdigit() else sizes.get(factor) for factor in axis.split("*")]
    values = [factor for factor in factors if factor is not None]
    return math.prod(values) if len(values) == len(factors) else None


def check_shape(match: MatchedEntry, sizes: Mapping[str, int], source: str) -> None:
    """Check the shape of an array against `sizes`; axes without a size may have any size."""
    axes, shape = match.entry.axes, match.array.shape
    expected = [_compute_size(axis, sizes) for axis in axes]
    if _is_compatible(shape, expected):
        return
    expected_text = ", ".join(axis if size is None else str(size) for axis, size in zip(axes, expected, strict=True))
    hint = " Its transpose fits: check `source`." if _is_compatible(shape[::-1], expected) else ""
    if {"K", "V", "Do"} & {factor for axis in axes for factor in axis.split("*")}:
        hint += " By default `key_dim` is Dq/H, `value_dim` is `key_dim` and `output_dim` is Dq."
    raise ValueError(
        f"`{match.name}` must have shape ({', '.join(axes)}) = ({expected_text}) from {source!r}. "
        f"Received: shape {shape}.{hint}"
    )


def _is_compatible(shape: tuple[int, ...], expected: list[int | None]) -> bool:
    return 0 not in shape and shapes_agree(shape, tuple(expected))
