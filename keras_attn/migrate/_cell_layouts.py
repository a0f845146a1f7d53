"""Weight layouts of recurrent attention decoders, by framework.

Further sizes are `H0 H1 ...`, the units of the recurrent layers from the lowest up, `X` of what goes into the lowest,
context and input side by side, and `M` of the memory.
"""

from typing import Any

import numpy as np

from .._layers.additive import AdditiveAttention
from ._layouts import Array, Entry, Layout, Sizes, Weights, entry_of, kernel_of
from ._state_dict import listed


def attention_cell_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    """What becomes an `AttentionCell` of additive attention and GRU cells."""
    if source not in ("torch", "tensorflow"):
        return ()
    cells = cells_of(layer)
    _check_is_the_textbooks(layer, cells)
    top = f"H{len(cells) - 1}"
    attention = (
        kernel_of(source, "attention.W_q", "attention.W_q", top, "U"),
        kernel_of(source, "attention.W_k", "attention.W_k", "M", "U"),
        kernel_of(source, "attention.w_v attention.v", "attention.w_v", "U", "1"),
    )
    of_cell = _of_torch if source == "torch" else _of_tensorflow
    recurrent = tuple(entry for place in range(len(cells)) for entry in of_cell(place, _path(layer, place)))
    return (Layout("the textbook's Seq2SeqAttentionDecoder", attention + recurrent, complete=_with_biases),)


def cells_of(layer: Any) -> list[Any]:
    """The cells within an `AttentionCell`, from the lowest up."""
    return list(getattr(layer.cell, "cells", [layer.cell]))


def recurrent_sizes(layer: Any) -> dict[str, int]:
    """The sizes that an `AttentionCell` has, and those of its inputs once it is built."""
    sizes = {f"H{place}": cell.units for place, cell in enumerate(cells_of(layer))}
    sizes["U"] = layer.attention.num_hiddens
    if layer.built:
        sizes |= {"M": layer.attention.W_k.kernel.shape[0], "X": cells_of(layer)[0].kernel.shape[0]}
    return sizes


def _path(layer: Any, place: int) -> str:
    return f"cell.cells.{place}" if hasattr(layer.cell, "cells") else "cell"


def _check_is_the_textbooks(layer: Any, cells: list[Any]) -> None:
    plain = layer.when == "before" and layer.attention_size is None and not layer.input_feeding
    attention = isinstance(layer.attention, AdditiveAttention) and not layer.attention.normalize
    if not (plain and attention and all(map(_is_the_textbooks, cells))):
        kinds = ", ".join(f"{type(cell).__name__} of {' and '.join(_activations(cell))}" for cell in cells)
        raise ValueError(
            "The cell must be what was trained: an `AdditiveAttention` without `normalize` before `GRUCell`s with bias "
            'and `reset_after=True`, of tanh and sigmoid, with `when="before"` and no `attention_size` or '
            "`input_feeding`. Received: "
            f"{type(layer.attention).__name__} and {kinds}, when={layer.when!r}."
        )


def _is_the_textbooks(cell: Any) -> bool:
    gru = getattr(cell, "reset_after", False) and cell.use_bias  # no other cell has the first option
    return gru and _activations(cell) == ["tanh", "sigmoid"]


def _activations(cell: Any) -> list[str]:
    """What a cell applies to states and to gates, by name."""
    found = (getattr(cell, name, None) for name in ("activation", "recurrent_activation"))
    return [getattr(each, "__name__", type(each).__name__) for each in found if each is not None]


def check_is_whole(layer: Any, unknown: list[str]) -> None:
    """Raises ValueError when the state has more recurrent layers than the cell, whatever else may be left out."""
    left_over = [name for name in unknown if name.startswith("rnn.")]
    if left_over:
        raise ValueError(
            f"The state must have an entry below `rnn` for each weight of the cells, here {len(cells_of(layer))}, and "
            f"no others. Received also: {listed(left_over)}. `strict=False` leaves out what stands beside the "
            "recurrent layers; give the cell as many of these, in `StackedRNNCells`."
        )


def check_inputs_beside_memory(sizes: Sizes) -> None:
    """Raises ValueError when nothing but the context could go into the lowest cell, which takes it before its input."""
    if sizes["X"] <= sizes["M"]:
        raise ValueError(
            "The kernel of the lowest recurrent layer must take the context of size M, that of the keys of the "
            f"attention, and an input beside it. Received: X={sizes['X']} in the recurrent layer, M={sizes['M']} in "
            "the attention. Pass the state of a decoder that concatenates both."
        )


def _of_torch(place: int, path: str) -> tuple[Entry, ...]:
    size, size_in = f"H{place}", f"H{place - 1}" if place else "X"
    names = (f"rnn.{kind}_l{place}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    into, within, bias_into, bias_within = names
    return (
        entry_of(into, f"3*{size} {size_in}", f"{path}.kernel", _gates_of_torch),
        entry_of(within, f"3*{size} {size}", f"{path}.recurrent_kernel", _gates_of_torch),
        entry_of(bias_into, f"3*{size}", f"{path}.bias:0", _gates_of_torch),
        entry_of(bias_within, f"3*{size}", f"{path}.bias:1", _gates_of_torch),
    )


def _gates_of_torch(array: Array) -> Array:
    """Kernels (3 H, in) and biases (3 H,) with the gates reset, update, new: (in, 3 H) with update, reset, new."""
    reset, update, new = np.split(array, 3)
    return np.concatenate([update, reset, new]).T


def _of_tensorflow(place: int, path: str) -> tuple[Entry, ...]:
    """A checkpoint names stacked cells by their number; one cell alone has none."""
    size, size_in = f"H{place}", f"H{place - 1}" if place else "X"
    own = "" if place else " rnn.cell."

    def names(variable: str) -> str:
        return f"rnn.cell.cells.{place}.{variable}" + (own and own + variable)

    return (
        entry_of(names("kernel"), f"{size_in} 3*{size}", f"{path}.kernel"),
        entry_of(names("recurrent_kernel"), f"{size} 3*{size}", f"{path}.recurrent_kernel"),
        entry_of(names("bias"), f"2 3*{size}", f"{path}.bias"),
    )


def _with_biases(weights: Weights, sizes: Sizes) -> Weights:
    """Biases of inputs and of states in one array, where they came as two."""
    halves = {name: weights.pop(name) for name in [*weights] if name.endswith((":0", ":1"))}
    paths = dict.fromkeys(name.rpartition(":")[0] for name in halves)
    return {**weights, **{path: np.stack([halves[f"{path}:0"], halves[f"{path}:1"]]) for path in paths}}
