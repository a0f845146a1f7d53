"""Weights of other frameworks: PyTorch, TensorFlow, Flax, MXNet, Paddle, TensorFlow Addons, Keras's own layers.

A state is a mapping of names to arrays, as the framework writes it; no framework is imported here. The tables in
`_layouts`, `_multi_head_layouts` and `_cell_layouts` list the names and layouts of the weights by framework.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from .._checks.constructor_arguments import check_scale
from .._keras.private_api import all_sublayers
from .._layers.additive import AdditiveAttention
from .._layers.bilinear import BilinearAttention
from .._layers.dot_product import DotProductAttention
from .._layers.multi_head import MultiHeadAttention
from .._recurrent.cell import AttentionCell
from .._recurrent.rnn import AttentionRNN
from ._cell_layouts import attention_cell_layouts, check_input_size, check_no_further_layers
from ._layer_sizes import INFERRED_AXES, INPUT_AXES, MatchedEntry, check_shape, infer_sizes
from ._layouts import Array, Layout, LayoutEntry, additive_layouts, bilinear_layouts, dot_product_layouts
from ._multi_head_layouts import multi_head_layouts
from ._state_dict import format_names, select_entries_under_prefix, to_array

__all__ = ["from_state"]

Source = Literal["torch", "tensorflow", "flax", "mxnet", "paddle", "tfa", "keras"]
LayerT = TypeVar("LayerT", bound=Any)

_AUTO_NAMED = re.compile(r"\bdense(_\d+)?/(kernel|bias)\b")  # default names of dense layers in Keras

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
    """Set the weights of a layer to the weights of a layer trained in another framework.

    If an entry does not fit, an error names the entry, and no weight changes.

    Args:
        layer: An `AdditiveAttention`, `DotProductAttention`, `BilinearAttention` or `MultiHeadAttention` with the
            options of the trained layer; or an `AttentionCell` or `AttentionRNN` like the recurrent decoder of the
            textbook (Dive into Deep Learning), without the layers before and after it. A layer that is not built takes
            its sizes from the state.
        state: Names and arrays, such as `{name: tensor.numpy() for name, tensor in module.state_dict().items()}`, flat
            or nested. The parts of a name are joined by `/` or `.`. The suffix `:0`, or of a TensorFlow checkpoint, is
            ignored.
        source: Framework of the state, which determines names and orientation: `"torch"`, `"tensorflow"`, `"flax"`,
            `"mxnet"` or `"paddle"`, for the textbook's layers and the framework's own; `"tfa"` for TensorFlow Addons;
            `"keras"` for Keras's own layers.
        prefix: Prefix of the names of this layer in the state of a model, such as `"decoder.attention"`.
        strict: Whether to refuse a state with unused entries under the prefix. Those of recurrent layers are always
            refused.

    Returns:
        The layer. A `DotProductAttention` has no weights; from `"keras"` it gets the scale, a Python number. If a model
        has already run, its trace has the earlier scale: call `model.compile` afterwards.

    Raises:
        TypeError: If the prefix is not a string.
        ValueError: If the source is unknown or has no such layer, if an entry is missing or unknown, if a shape does
            not fit, or if a value is too large for the dtype of the layer.

    Example:
        >>> state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
        >>> layer = from_state(AdditiveAttention(num_hiddens=8), state, source="torch")
    """
    if not isinstance(prefix, str):
        raise TypeError(f"`prefix` must be a string. Received: prefix of type {type(prefix).__name__}.")
    if isinstance(layer, AttentionRNN):
        from_state(layer.cell, state, source, prefix=prefix, strict=strict)
        return layer
    # Check everything before the first assignment, so that an error leaves the layer unchanged.
    layouts = _get_layouts(layer, source)
    entries = select_entries_under_prefix(prefix, state, source)
    layout, keys = _choose_layout(layouts, entries)
    _check_names(layout, keys, entries, source, strict)
    if isinstance(layer, AttentionCell):
        check_no_further_layers(layer, sorted(entries.keys() - keys.values()))
    _check_plain(layer)
    matches = [MatchedEntry(entry, entries[key][0], to_array(*entries[key])) for entry, key in keys.items()]
    sizes = infer_sizes(layer, layout, matches)
    expected = sizes if layer.built else {name: size for name, size in sizes.items() if name not in INFERRED_AXES}
    for match in matches:
        check_shape(match, expected, source)
    if isinstance(layer, AttentionCell):
        check_input_size(sizes)
    weights = layout.weights({match.entry.names[0]: match.array for match in matches}, sizes)
    _check_range(layer, weights)
    if not layer.built:
        _build(layer, sizes)
    for name, array in weights.items():
        _assign(layer, name, array)
    return layer


def _get_layouts(layer: Any, source: str) -> tuple[Layout, ...]:
    if source not in get_args(Source):
        raise ValueError(f"`source` must be one of {format_names(get_args(Source))}. Received: source={source!r}.")
    make_layouts = next((_LAYOUTS[base] for base in type(layer).__mro__ if base in _LAYOUTS), None)
    layouts = make_layouts(layer, source) if make_layouts else ()
    if not layouts:
        raise ValueError(f"A layer of type {type(layer).__name__} has no counterpart in {source!r}.")
    return layouts


def _choose_layout(layouts: tuple[Layout, ...], values: Mapping[str, Any]) -> tuple[Layout, dict[LayoutEntry, str]]:
    """Return the first of the layouts with the most entries in a state, and the names of these entries in the state."""
    # A framework may have several such layers. If entries are missing, the message names the closest of them.
    matches = []
    for layout in layouts:
        keys = {entry: [name for name in entry.names if name in values] for entry in layout.entries}
        matches.append((layout, {entry: names[0] for entry, names in keys.items() if names}))
    return max(matches, key=lambda match: len(match[1]))


def _check_names(
    layout: Layout, keys: Mapping[LayoutEntry, str], values: Mapping[str, tuple[str, Any]], source: str, strict: bool
) -> None:
    missing = [entry.names[0] for entry in layout.entries if not entry.optional and entry not in keys]
    if missing:
        received = [name for name, _ in values.values()]
        raise ValueError(
            f"Entries of {layout.origin} are missing from the state: {format_names(missing)}. "
            f"Received: {format_names(received)}, from {source!r}. {_missing_entries_hint(received)}"
        )
    unknown = [name for key, (name, _) in values.items() if key not in keys.values()]
    if unknown and strict:
        raise ValueError(
            f"The layer has no weight for these entries of the state: {format_names(unknown)}. For {layout.origin} of "
            f"{source!r} it needs {format_names(entry.names[0] for entry in layout.entries)}. Create the layer with "
            "the options of the trained layer, or pass `strict=False` to ignore the entries."
        )


def _missing_entries_hint(received: list[str]) -> str:
    """Return the last sentence of the message about missing entries: the likely cause."""
    if any(_AUTO_NAMED.search(name) for name in received):
        return (
            "Names such as `dense_3/kernel` count layers of Keras and do not identify them: rename each by the "
            "attribute of its layer, as `W_q/kernel`, and pass source='tensorflow'."
        )
    return "Layer options, such as `use_bias`, determine the required entries, and `prefix` the entries that are read."


def _check_plain(layer: Any) -> None:
    """Raise ValueError if a layer or sublayer is quantized or has LoRA: kernels then are not plain variables."""
    for part in (layer, *all_sublayers(layer)):
        if getattr(part.dtype_policy, "quantization_mode", None) or getattr(part, "lora_enabled", False):
            raise ValueError(f"`{part.name}` must not be quantized or have LoRA yet. Call `from_state` before that.")


def _check_range(layer: Any, weights: Mapping[str, Array]) -> None:
    """Raise ValueError if a finite value overflows in the dtype of its weight. Infinities in the state are kept."""
    for name, array in weights.items():
        dtype = _get_weight_dtype(layer, name)
        # NumPy has no bfloat16. The largest bfloat16 is 0.4 % smaller than the largest float32.
        max_value = np.finfo("float32" if dtype == "bfloat16" else dtype).max
        value = np.abs(array[np.isfinite(array)]).max(initial=0.0)
        if value > max_value:
            raise ValueError(f"`{name}` of the layer has dtype {dtype}, and the state has {value:.3g}: too large.")


def _get_weight_dtype(layer: Any, name: str) -> str:
    """Return the dtype of a weight: the variable dtype of the innermost layer around it, which may not be built."""
    owners = [part for part in (layer, *_walk_to(layer, name)) if hasattr(part, "variable_dtype")]
    return str(owners[-1].variable_dtype)


def _walk_to(layer: Any, name: str) -> Iterator[Any]:
    """Yield the objects on the attribute path from a layer to a weight; the weight is None before it is built."""
    part = layer
    for word in name.split("."):
        part = part[int(word)] if word.isdigit() else getattr(part, word, None)
        yield part


def _build(layer: Any, sizes: Mapping[str, int]) -> None:
    if isinstance(layer, AttentionCell):
        layer.build((None, sizes["X"] - sizes["M"]), None, (None, None, sizes["M"]))
    elif "Dq" in sizes:  # a dot product has no sizes; its first call builds it
        layer.build(*((None, None, sizes.get(name)) for name in INPUT_AXES))


def _assign(layer: Any, name: str, array: Array) -> None:
    if name == "scale":  # a number in `DotProductAttention`, not a variable
        layer.scale = check_scale(float(array))
        return
    *_, variable = _walk_to(layer, name)
    variable.assign(array)
