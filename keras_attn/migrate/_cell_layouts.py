"""Weight layouts of recurrent attention decoders, by framework.

Axes in addition to those of `_layouts`: `H0 H1 ...`, units of the recurrent layers from the lowest up; `X`, size of the
lowest layer's input, which is the context and the input concatenated; `M`, size of the memory.
"""

from typing import Any

import numpy as np

from .._layers.additive import AdditiveAttention
from ._layouts import Array, Layout, LayoutEntry, Sizes, Weights, make_entry, make_kernel_entry
from ._state_dict import format_names


def attention_cell_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """Return the layouts for an `AttentionCell` with additive attention and GRU cells."""
    if source not in ("torch", "tensorflow"):
        return ()
    cells = get_cells(layer)
    _check_textbook_cell(layer, cells)
    top = f"H{len(cells) - 1}"
    attention = (
        make_kernel_entry(source, "attention.W_q", "attention.W_q", top, "U"),
        make_kernel_entry(source, "attention.W_k", "attention.W_k", "M", "U"),
        make_kernel_entry(source, "attention.w_v attention.v", "attention.w_v", "U", "1"),
    )
    make_entries = _make_torch_entries if source == "torch" else _make_tensorflow_entries
    recurrent = tuple(entry for index in range(len(cells)) for entry in make_entries(index, _cell_path(layer, index)))
    return (Layout("the textbook's Seq2SeqAttentionDecoder", attention + recurrent, finalize=_stack_biases),)


def get_cells(layer: Any) -> list[Any]:
    """Return the Keras cells of an `AttentionCell`, from the lowest up."""
    return list(getattr(layer.cell, "cells", [layer.cell]))


def get_recurrent_sizes(layer: Any) -> dict[str, int]:
    """Return the sizes of an `AttentionCell`, with those of its inputs if it is built."""
    sizes = {f"H{index}": cell.units for index, cell in enumerate(get_cells(layer))}
    sizes["U"] = layer.attention.num_hiddens
    if layer.built:
        sizes |= {"M": layer.attention.W_k.kernel.shape[0], "X": get_cells(layer)[0].kernel.shape[0]}
    return sizes


def _cell_path(layer: Any, index: int) -> str:
    return f"cell.cells.{index}" if hasattr(layer.cell, "cells") else "cell"


def _check_textbook_cell(layer: Any, cells: list[Any]) -> None:
    has_options = layer.when == "before" and layer.attention_size is None and not layer.input_feeding
    has_attention = isinstance(layer.attention, AdditiveAttention) and not layer.attention.normalize
    if not (has_options and has_attention and all(map(_is_textbook_gru, cells))):
        received_cells = ", ".join(
            f"{type(cell).__name__} of {' and '.join(_activation_names(cell))}" for cell in cells
        )
        raise ValueError(
            "The cell must be like the trained decoder: `AdditiveAttention` without `normalize`, `GRUCell`s with bias, "
            '`reset_after=True` and activations tanh and sigmoid, `when="before"`, no `attention_size` or '
            f"`input_feeding`. Received: {type(layer.attention).__name__} and {received_cells}, when={layer.when!r}."
        )


def _is_textbook_gru(cell: Any) -> bool:
    is_gru = getattr(cell, "reset_after", False) and cell.use_bias  # only `GRUCell` has `reset_after`
    return is_gru and _activation_names(cell) == ["tanh", "sigmoid"]


def _activation_names(cell: Any) -> list[str]:
    """Return the names of the activations of a cell: of the state, then of the gates."""
    functions = (getattr(cell, name, None) for name in ("activation", "recurrent_activation"))
    return [getattr(x, "__name__", type(x).__name__) for x in functions if x is not None]


def check_no_further_layers(layer: Any, unknown: list[str]) -> None:
    """Raise ValueError if the state has more recurrent layers than the cell, whether or not `strict` is set."""
    unused = [name for name in unknown if name.startswith("rnn.")]
    if unused:
        raise ValueError(
            f"The state must have as many recurrent layers as the cell, here {len(get_cells(layer))}. Received also: "
            f"{format_names(unused)}. Wrap as many cells in `StackedRNNCells` as the state has layers; `strict=False` "
            "does not ignore recurrent layers."
        )


def check_input_size(sizes: Sizes) -> None:
    """Raise ValueError if the lowest recurrent layer has no room for an input in addition to the context."""
    if sizes["X"] <= sizes["M"]:
        raise ValueError(
            "The input size X of the lowest recurrent layer must exceed the context of size M: context and input are "
            f"concatenated. Received: X={sizes['X']} in the recurrent layer, M={sizes['M']} in the attention. Pass the "
            "state of a decoder that concatenates both."
        )


def _make_torch_entries(index: int, path: str) -> tuple[LayoutEntry, ...]:
    size, size_in = f"H{index}", f"H{index - 1}" if index else "X"
    prefixes = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    kernel, recurrent_kernel, input_bias, recurrent_bias = (f"rnn.{prefix}_l{index}" for prefix in prefixes)
    return (
        make_entry(kernel, f"3*{size} {size_in}", f"{path}.kernel", _reorder_torch_gates),
        make_entry(recurrent_kernel, f"3*{size} {size}", f"{path}.recurrent_kernel", _reorder_torch_gates),
        make_entry(input_bias, f"3*{size}", f"{path}.bias:0", _reorder_torch_gates),
        make_entry(recurrent_bias, f"3*{size}", f"{path}.bias:1", _reorder_torch_gates),
    )


def _reorder_torch_gates(array: Array) -> Array:
    """Reorder the gates of a kernel (3 H, in) or bias (3 H,) of torch: (in, 3 H) or (3 H,) as in Keras."""
    # torch stores the gates of a GRU as reset, update, new; Keras stores update, reset, new, and kernels transposed.
    reset, update, new = np.split(array, 3)
    return np.concatenate([update, reset, new]).T


def _make_tensorflow_entries(index: int, path: str) -> tuple[LayoutEntry, ...]:
    size, size_in = f"H{index}", f"H{index - 1}" if index else "X"
    # In a checkpoint the names of stacked cells have an index; the name of a single cell has none.
    single = "" if index else " rnn.cell."

    def names(variable: str) -> str:
        return f"rnn.cell.cells.{index}.{variable}" + (single and single + variable)

    return (
        make_entry(names("kernel"), f"{size_in} 3*{size}", f"{path}.kernel"),
        make_entry(names("recurrent_kernel"), f"{size} 3*{size}", f"{path}.recurrent_kernel"),
        make_entry(names("bias"), f"2 3*{size}", f"{path}.bias"),
    )


def _stack_biases(weights: Weights, sizes: Sizes) -> Weights:
    """Stack the biases of inputs and of states, (3 H,) each, to (2, 3 H) as in Keras."""
    halves = {name: weights.pop(name) for name in [*weights] if name.endswith((":0", ":1"))}
    paths = dict.fromkeys(name.rpartition(":")[0] for name in halves)
    return {**weights, **{path: np.stack([halves[f"{path}:0"], halves[f"{path}:1"]]) for path in paths}}
