"""Loads weights trained elsewhere: PyTorch, TensorFlow, Flax, MXNet, Paddle, TensorFlow Addons, Keras's own layers.

A state is a mapping of names to arrays, as each framework writes it; none of them is imported here. The tables in
`_layouts`, `_heads` and `_cells` hold the names and layouts of the weights in each framework.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from .._checks.constructor_arguments import check_scale
from .._keras.private_api import sublayers_of
from .._layers.additive import AdditiveAttention
from .._layers.bilinear import BilinearAttention
from .._layers.dot_product import DotProductAttention
from .._layers.multi_head import MultiHeadAttention
from .._recurrent.cell import AttentionCell
from .._recurrent.rnn import AttentionRNN
from ._cell_layouts import attention_cell_layouts, check_inputs_beside_memory, check_is_whole
from ._layer_sizes import INPUT_SIZES, OF_INPUTS, Part, check_shape, sizes_of
from ._layouts import Array, Entry, Layout, additive_layouts, bilinear_layouts, dot_product_layouts
from ._multi_head_layouts import multi_head_layouts
from ._state_dict import array_of, listed, values_below

__all__ = ["from_state"]

Source = Literal["torch", "tensorflow", "flax", "mxnet", "paddle", "tfa", "keras"]
LayerT = TypeVar("LayerT", bound=Any)

_COUNTED = re.compile(r"\bdense(_\d+)?/(kernel|bias)\b")  # what Keras calls a dense layer without a name

_LAYOUTS: dict[type, Callable[[Any, str], tuple[Layout, ...]]] = {
    AdditiveAttention: additive_layouts,
    DotProductAttention: dot_product_layouts,
    BilinearAttention: bilinear_layouts,
    MultiHeadAttention: multi_head_layouts,
    AttentionCell: attention_cell_layouts,
}


def from_state(
    layer: LayerT, state: Mapping[Any, Any], source: Source, *, prefix: str = "", strict: bool = True
) -> LayerT:
    """Sets the weights of a layer to those of a layer that was trained elsewhere.

    If something does not fit, an error says what, and no weight has changed.

    Args:
        layer: An `AdditiveAttention`, `DotProductAttention`, `BilinearAttention` or `MultiHeadAttention` with the
            options of the trained layer; or an `AttentionCell` or `AttentionRNN` like the recurrent decoder of the
            textbook (Dive into Deep Learning), without the layers before and after it. If it is not built, it takes its
            sizes from the state.
        state: Names and arrays, such as `{name: tensor.numpy() for name, tensor in module.state_dict().items()}`, flat
            or nested. The parts of a name are joined by `/` or `.`. A suffix `:0`, or that of a TensorFlow checkpoint,
            is ignored.
        source: Where the state is from, which decides names and orientation: `"torch"`, `"tensorflow"`, `"flax"`,
            `"mxnet"` or `"paddle"`, for the textbook's layers and the framework's own; `"tfa"` for TensorFlow Addons;
            `"keras"` for Keras's own layers.
        prefix: The part before the names of this layer in the state of a whole model, such as `"decoder.attention"`.
        strict: Whether to refuse a state with further entries below the prefix. Entries of further recurrent layers are
            always refused.

    Returns:
        The layer. A `DotProductAttention` has no weights; from `"keras"` it gets the scale. The scale is a number that
        a model which has already run does not read again: call `model.compile` after it.

    Raises:
        TypeError: If the prefix is not a string.
        ValueError: If the source is unknown or has no such layer, if an entry is missing or unknown, if a shape does
            not fit, or if a number is too large for the dtype of the layer.

    Example:
        >>> state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
        >>> layer = from_state(AdditiveAttention(num_hiddens=8), state, source="torch")
    """
    if not isinstance(prefix, str):
        raise TypeError(f"`prefix` must be a string. Received: prefix of type {type(prefix).__name__}.")
    if isinstance(layer, AttentionRNN):
        from_state(layer.cell, state, source, prefix=prefix, strict=strict)
        return layer
    layouts = _layouts_of(layer, source)
    values = values_below(prefix, state, source)
    layout, keys = _choose(layouts, values)
    _check_names(layout, keys, values, source, strict)
    if isinstance(layer, AttentionCell):
        check_is_whole(layer, sorted(values.keys() - keys.values()))
    _check_plain(layer)
    parts = [Part(entry, values[key][0], array_of(*values[key])) for entry, key in keys.items()]
    sizes = sizes_of(layer, layout, parts)
    expected = sizes if layer.built else {name: size for name, size in sizes.items() if name not in OF_INPUTS}
    for part in parts:
        check_shape(part, expected, source)
    if isinstance(layer, AttentionCell):
        check_inputs_beside_memory(sizes)
    weights = layout.weights({part.entry.names[0]: part.array for part in parts}, sizes)
    _check_range(layer, weights)
    if not layer.built:
        _build(layer, sizes)
    for name, array in weights.items():
        _set(layer, name, array)
    return layer


def _layouts_of(layer: Any, source: str) -> tuple[Layout, ...]:
    if source not in get_args(Source):
        raise ValueError(f"`source` must be one of {listed(get_args(Source))}. Received: source={source!r}.")
    maker = next((_LAYOUTS[kind] for kind in type(layer).__mro__ if kind in _LAYOUTS), None)
    layouts = maker(layer, source) if maker else ()
    if not layouts:
        raise ValueError(f"From {source!r} there is nothing that becomes a layer of type {type(layer).__name__}.")
    return layouts


def _choose(layouts: tuple[Layout, ...], values: Mapping[str, Any]) -> tuple[Layout, dict[Entry, str]]:
    """Return the first of the layouts with the most entries in a state, and the names of these entries there."""
    present = []
    for layout in layouts:
        names = {entry: [name for name in entry.names if name in values] for entry in layout.entries}
        present.append((layout, {entry: there[0] for entry, there in names.items() if there}))
    return max(present, key=lambda pair: len(pair[1]))


def _check_names(
    layout: Layout, keys: Mapping[Entry, str], values: Mapping[str, tuple[str, Any]], source: str, strict: bool
) -> None:
    missing = [entry.names[0] for entry in layout.entries if not entry.optional and entry not in keys]
    if missing:
        received = [name for name, _ in values.values()]
        raise ValueError(
            f"Entries of {layout.origin} are missing from the state: {listed(missing)}. "
            f"Received: {listed(received)}, from {source!r}. {_what_decides(received)}"
        )
    unknown = [name for key, (name, _) in values.items() if key not in keys.values()]
    if unknown and strict:
        raise ValueError(
            f"The state has entries that this layer has no weight for: {listed(unknown)}. Of {layout.origin} from "
            f"{source!r} it takes {listed(entry.names[0] for entry in layout.entries)}. Give it the options of the "
            "layer that was trained, or pass `strict=False` to leave them out."
        )


def _what_decides(received: list[str]) -> str:
    """Say what to look at where entries are missing."""
    if any(_COUNTED.search(name) for name in received):
        return (
            "Names such as `dense_3/kernel` count layers of Keras and do not say which is which: name each by the "
            "attribute that holds its layer, as `W_q/kernel`, and pass source='tensorflow'."
        )
    return "Options of the layer, such as `use_bias`, decide which there must be, and `prefix` which are looked at."


def _check_plain(layer: Any) -> None:
    """Checks that kernels are variables that hold numbers as they are."""
    for part in (layer, *sublayers_of(layer)):
        if getattr(part.dtype_policy, "quantization_mode", None) or getattr(part, "lora_enabled", False):
            raise ValueError(f"`{part.name}` must not be quantized or have LoRA yet. Call `from_state` before that.")


def _check_range(layer: Any, weights: Mapping[str, Array]) -> None:
    """Checks that no number becomes infinite in the dtype of its part; infinities that were there are taken over."""
    for name, array in weights.items():
        dtype = _dtype_of(layer, name)
        largest = np.finfo("float32" if dtype == "bfloat16" else dtype).max  # the largest bfloat16 is 0.4 % smaller
        beyond = np.abs(array[np.isfinite(array)]).max(initial=0.0)
        if beyond > largest:
            raise ValueError(
                f"`{name}` of the layer holds {dtype} and the state {beyond:.3g}, which is too large for it."
            )


def _dtype_of(layer: Any, name: str) -> str:
    """The dtype of a weight: that of the innermost layer on the way to it, which need not be built."""
    owners = [part for part in (layer, *_parts_to(layer, name)) if hasattr(part, "variable_dtype")]
    return str(owners[-1].variable_dtype)


def _parts_to(layer: Any, name: str) -> Iterator[Any]:
    """What stands on the way from a layer to a weight in it, and that, which is None before it is built."""
    part = layer
    for word in name.split("."):
        part = part[int(word)] if word.isdigit() else getattr(part, word, None)
        yield part


def _build(layer: Any, sizes: Mapping[str, int]) -> None:
    if isinstance(layer, AttentionCell):
        layer.build((None, sizes["X"] - sizes["M"]), None, (None, None, sizes["M"]))
    elif "Dq" in sizes:  # a dot product has no sizes, and is built by its first call
        layer.build(*((None, None, sizes.get(name)) for name in INPUT_SIZES))


def _set(layer: Any, name: str, array: Array) -> None:
    if name == "scale":  # a number that `DotProductAttention` is made with, no variable
        layer.scale = check_scale(float(array))
        return
    *_, variable = _parts_to(layer, name)
    variable.assign(array)
