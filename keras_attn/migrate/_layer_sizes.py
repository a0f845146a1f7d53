"""Infer layer sizes from a state dict, and check shapes against them."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._layers.additive import AdditiveAttention
from .._layers.bilinear import BilinearAttention
from .._layers.multi_head import MultiHeadAttention
from .._recurrent.cell import AttentionCell
from .._shapes import shapes_agree
from ._cell_layouts import recurrent_sizes
from ._layouts import Array, Entry, Layout

INPUT_SIZES = ("Dq", "Dk", "Dv")
OF_INPUTS = (*INPUT_SIZES, "M", "X")  # of a recurrent cell too


class Part(NamedTuple):
    """An entry of a layout, and the name and the array that a state has for it."""

    entry: Entry
    name: str
    array: Array


def sizes_of(layer: Any, layout: Layout, parts: list[Part]) -> dict[str, int]:
    """All sizes: those of the layer, and while that is not built those of its inputs from the state."""
    sizes: dict[str, int] = {}
    for part in parts:
        if part.array.ndim == len(part.entry.axes):
            axes = zip(part.entry.axes, part.array.shape, strict=True)
            sizes.update({axis: size for axis, size in axes if axis in OF_INPUTS})
    sizes.update(_own_sizes(layer, sizes.get("Dq")))
    equal = {axis: _size(axis, sizes) for axis in layout.equal}
    known = {size for size in equal.values() if size is not None}
    if len(known) > 1:
        received = ", ".join(f"{axis}={size}" for axis, size in equal.items())
        raise ValueError(f"{layout.origin} has {' = '.join(equal)}, and this layer must too. Received: {received}.")
    return {**{axis: size for axis in equal if axis in INPUT_SIZES for size in known}, **sizes}


def _own_sizes(layer: Any, queries_size: int | None) -> dict[str, int]:
    """The sizes that a layer has, or will have once it is built for queries of this size."""
    sizes: dict[str, int | None] = {}
    if isinstance(layer, AdditiveAttention):
        sizes["U"] = layer.num_hiddens
        if layer.built:
            sizes |= {"Dq": layer.W_q.kernel.shape[0], "Dk": layer.W_k.kernel.shape[0]}
    elif isinstance(layer, AttentionCell):
        sizes |= recurrent_sizes(layer)
    elif isinstance(layer, BilinearAttention) and layer.built:
        sizes["Dk"], sizes["Dq"] = layer.W.kernel.shape
    elif isinstance(layer, MultiHeadAttention):
        if layer.built:
            projections = zip(INPUT_SIZES, (layer.W_q, layer.W_k, layer.W_v), strict=True)
            sizes |= {name: projection.kernel.shape[0] for name, projection in projections}
            queries_size = sizes["Dq"]
        key_dim = layer.key_dim or (queries_size and queries_size // layer.num_heads)
        sizes |= {"H": layer.num_heads, "G": layer.num_kv_heads or layer.num_heads}
        sizes |= {"K": key_dim, "V": layer.value_dim or key_dim, "Do": layer.output_dim or queries_size}
    return {name: size for name, size in sizes.items() if size is not None}


def _size(axis: str, sizes: Mapping[str, int]) -> int | None:
    """The size of an axis, which may be a product such as `3*H*K`; None while it is unknown."""
    factors = [int(factor) if factor.isdigit() else sizes.get(factor) for factor in axis.split("*")]
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def check_shape(part: Part, sizes: Mapping[str, int], source: str) -> None:
    """Checks the shape of an array against the sizes that are given."""
    axes, shape = part.entry.axes, part.array.shape
    expected = [_size(axis, sizes) for axis in axes]
    if _fits(shape, expected):
        return
    numbers = ", ".join(axis if size is None else str(size) for axis, size in zip(axes, expected, strict=True))
    hint = " Its transpose fits: perhaps `source` is another." if _fits(shape[::-1], expected) else ""
    if {"K", "V", "Do"} & {factor for axis in axes for factor in axis.split("*")}:
        hint += " Unless given, `key_dim` is Dq/H, `value_dim` is `key_dim` and `output_dim` is Dq."
    raise ValueError(
        f"`{part.name}` must have shape ({', '.join(axes)}) = ({numbers}) from {source!r}. "
        f"Received: shape {shape}.{hint}"
    )


def _fits(shape: tuple[int, ...], expected: list[int | None]) -> bool:
    return 0 not in shape and shapes_agree(shape, tuple(expected))
